"""Files from the network and where they are kept."""

from __future__ import annotations

import os
import time
import warnings
from pathlib import Path

from ..engine.base import data_dir
from ..engine.error import InvalidValue, MXNetError


def check_sha1(filename, sha1_hash) -> bool:
    """Has the file this SHA-1 (hexadecimal)?"""
    import hashlib  # here: it loads OpenSSL

    sha1 = hashlib.sha1()
    with open(filename, "rb") as f:
        while block := f.read(1 << 20):
            sha1.update(block)
    return sha1.hexdigest() == sha1_hash


REPOSITORY = "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/"  # of Apache MXNet


def _get_repo_url() -> str:
    """The base URL of models and data sets: $MXNET_GLUON_REPO, or MXNet's own repository."""
    url = os.environ.get("MXNET_GLUON_REPO") or REPOSITORY
    return url if url.endswith("/") else url + "/"


def _get_repo_file_url(namespace, filename) -> str:
    """The URL of a file in that repository."""
    return f"{_get_repo_url()}{namespace}/{filename}"


def local_folder(root) -> Path:
    """Expands a folder name: ~ is the home folder; ~/.mxnet is $MXNET_HOME if that is set."""
    default = Path("~", ".mxnet")
    if Path(root).is_relative_to(default):
        return Path(data_dir()) / Path(root).relative_to(default)
    return Path(root).expanduser()


def replace_file(src, dst) -> None:
    """Moves src to dst in one step."""
    os.replace(src, dst)


class DownloadError(InvalidValue):
    """Invalid arguments of a download."""


def download(url, path=None, overwrite=False, sha1_hash=None, retries=5, verify_ssl=True) -> str:
    """Fetches a URL (http, https, file) into a file (a path, or a folder) unless it is there
    already. Returns the file's name.

    Args:
        overwrite: downloads even if the file exists. A file that does not have sha1_hash is always
            replaced.
        retries: attempts, at least one; there are pauses of 2, 4, 8 and then 10 seconds between.
        verify_ssl: False accepts any certificate, with a warning.
    Raises: MXNetError after the last failed attempt, or when the content does not have sha1_hash;
    an existing file is left unchanged.
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
    import tempfile  # here: together they bring 60 modules of the standard library
    import urllib.request

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
