"""gluon.utils: spreading data over devices, clipping gradients, downloads (the module's name is
MXNet's)."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import tempfile
import time
import urllib.request
import warnings
from pathlib import Path

from ..engine.base import data_dir
from ..engine.error import InvalidValue, MXNetError
from ..ndarray import NDArray, functions
from ..ndarray.invoke import copy_into
from ..ndarray.numpy_mode import is_np_array, is_np_shape  # noqa: F401
from .hook import HookHandle  # noqa: F401
from .parameter import shape_is_known  # noqa: F401

__all__ = ["check_sha1", "clip_global_norm", "download", "split_and_load", "split_data"]


def split_data(data, num_slice, batch_axis=0, even_split=True) -> list[NDArray]:
    """data cut into num_slice parts along batch_axis. Raises ValueError when parts would be uneven
    (even_split)."""
    if num_slice < 1:
        raise InvalidValue(
            f"split_data: num_slice must be at least 1, got {num_slice}\n  fix: give one or more"
            " contexts"
        )
    size = data.shape[batch_axis]
    if size < num_slice:
        raise InvalidValue(
            f"Too many slices for data with shape {data.shape}. Arguments are num_slice={num_slice}"
            f" and batch_axis={batch_axis}."
        )
    if even_split and size % num_slice:
        raise InvalidValue(
            f"data with shape {data.shape} cannot be evenly split into {num_slice} slices along"
            f" axis {batch_axis}. Use a batch size that's multiple of {num_slice} or set"
            " even_split=False to allow uneven partitioning of data."
        )
    step = size // num_slice
    if even_split or not size % num_slice:
        bounds = [i * step for i in range(num_slice + 1)]
    # the first parts are one longer, as numpy.array_split has them
    else:
        extra = size - step * num_slice
        bounds = [i * (step + 1) if i < extra else i * step + extra for i in range(num_slice + 1)]
    if batch_axis == 0:
        return [data[a:b] for a, b in itertools.pairwise(bounds)]
    return [
        functions.slice_axis(data, axis=batch_axis, begin=a, end=b)
        for a, b in itertools.pairwise(bounds)
    ]


def split_and_load(data, ctx_list, batch_axis=0, even_split=True) -> list[NDArray]:
    """split_data, each part on its device."""
    if not isinstance(data, NDArray):
        data = functions.array(data, ctx=ctx_list[0])
    if len(ctx_list) == 1:
        return [data.as_in_context(ctx_list[0])]
    return [
        part.as_in_context(c)
        for part, c in zip(split_data(data, len(ctx_list), batch_axis, even_split), ctx_list)
    ]


def clip_global_norm(arrays, max_norm, check_isfinite=True):
    """Scales arrays in place so that the norm of all of them together is at most max_norm. Returns
    the norm before.

    check_isfinite: waits for the norm, warns when it is not finite, and returns a float; else an
        NDArray.
    """
    if not arrays:
        raise InvalidValue("clip_global_norm: needs at least one array")
    ctx = arrays[0].context
    total = functions.add_n(
        *[
            functions.sum(functions.square(a.astype("float32", copy=False)))
            .reshape((1,))
            .as_in_context(ctx)
            for a in arrays
        ]
    )
    norm = functions.sqrt(total)
    if check_isfinite:
        norm = float(norm.asscalar())
        if not math.isfinite(norm):
            warnings.warn(
                "nan or inf is detected. Clipping results will be undefined.",
                UserWarning,
                stacklevel=2,
            )
        scale = max_norm / (norm + 1e-8)
        if scale < 1.0:
            for a in arrays:
                copy_into(a * scale, a)
        return norm
    scale = functions.broadcast_minimum(max_norm / (norm + 1e-8), functions.ones((1,), ctx))
    for a in arrays:
        copy_into(
            functions.broadcast_mul(a, scale.as_in_context(a.context).astype(a.dtype, copy=False)),
            a,
        )
    return norm


def check_sha1(filename, sha1_hash) -> bool:
    """Has the file this SHA-1 (hexadecimal)?"""
    sha1 = hashlib.sha1()
    with open(filename, "rb") as f:
        while block := f.read(1 << 20):
            sha1.update(block)
    return sha1.hexdigest() == sha1_hash


REPOSITORY = "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/"  # of Apache MXNet


def _get_repo_url() -> str:
    """Where models and data sets can be fetched from: $MXNET_GLUON_REPO, or MXNet's own place."""
    url = os.environ.get("MXNET_GLUON_REPO") or REPOSITORY
    return url if url.endswith("/") else url + "/"


def _get_repo_file_url(namespace, filename) -> str:
    """The URL of a file there."""
    return f"{_get_repo_url()}{namespace}/{filename}"


def local_folder(root) -> Path:
    """A folder as scripts give it: ~ is the home; ~/.mxnet is $MXNET_HOME where that is set."""
    default = Path("~", ".mxnet")
    if Path(root).is_relative_to(default):
        return Path(data_dir()) / Path(root).relative_to(default)
    return Path(root).expanduser()


def replace_file(src, dst) -> None:
    """Moves src to dst in one step."""
    os.replace(src, dst)


class DownloadError(InvalidValue):
    """Arguments that no download can begin with."""


def download(url, path=None, overwrite=False, sha1_hash=None, retries=5, verify_ssl=True) -> str:
    """Fetches a URL (http, https, file) into a file (a path, or a folder) unless it is there
    already. Returns the file's name.

    Args:
        overwrite: fetches it anyway, as it does when the file there does not have sha1_hash.
        retries: attempts, at least one; there are pauses of 2, 4, 8 and then 10 seconds between.
        verify_ssl: False accepts any certificate, with a warning.
    Raises: MXNetError after the last failed attempt, or when the content does not have sha1_hash;
        the file that was there before stays as it was.
    """
    name = url.split("/")[-1]
    if path is None:
        target = name
    else:
        path = os.path.expanduser(path)
        target = os.path.join(path, name) if os.path.isdir(path) else path
    if not target:
        raise DownloadError(f"download: {url!r} does not end with a file name\n  fix: path='name'")
    if (
        not overwrite
        and os.path.exists(target)
        and (not sha1_hash or check_sha1(target, sha1_hash))
    ):
        return target
    if retries < 0:
        raise DownloadError(f"Number of retries should be at least 0, currently it's {retries}")
    folder = os.path.dirname(os.path.abspath(target))
    os.makedirs(folder, exist_ok=True)
    context = None
    if not verify_ssl:
        import ssl

        warnings.warn(
            "Unverified HTTPS request is being made (verify_ssl=False). Adding certificate"
            " verification is strongly advised.",
            stacklevel=2,
        )
        context = ssl._create_unverified_context()
    for attempt in range(1, max(1, retries) + 1):
        handle, partial = tempfile.mkstemp(dir=folder, prefix=os.path.basename(target))
        try:
            with (
                os.fdopen(handle, "wb") as out,
                urllib.request.urlopen(url, context=context) as source,
            ):
                while block := source.read(1 << 20):
                    out.write(block)
            if sha1_hash and not check_sha1(partial, sha1_hash):
                raise MXNetError(f"download: {url} does not have the SHA-1 {sha1_hash}")
            os.replace(partial, target)
            return target
        except (OSError, MXNetError) as error:
            os.unlink(partial)
            if attempt >= retries:
                raise MXNetError(f"download: {url} failed {attempt} times: {error}") from error
            time.sleep(min(2**attempt, 10))
    raise AssertionError  # the last attempt returns or raises
