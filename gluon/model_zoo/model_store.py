"""Files with trained parameters: found in a folder, or downloaded from your own repository."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...data.download import _get_repo_file_url, check_sha1, download, local_folder, replace_file
from ...engine import Context, cpu
from ...engine.error import InvalidValue, MXNetError, compose
from .checksums import SHA1 as _model_sha1

ROOT = os.path.join("~", ".mxnet", "models")  # ~/.mxnet: $MXNET_HOME where that is set
CPU = cpu()


class ModelFileError(MXNetError, FileNotFoundError):
    """No file with the parameters of a model."""


def short_hash(name: str) -> str:
    """The eight letters in the name of MXNet's file of a model. Raises ValueError."""
    if name not in _model_sha1:
        raise InvalidValue(f"Pretrained model for {name} is not available.")
    return _model_sha1[name][:8]


def _found(name: str, folder: Path) -> Path | None:
    """A model's file in a folder: MXNet's file name, one with another hash, or one without a
    hash."""
    for pattern in (
        *([f"{name}-{short_hash(name)}.params"] if name in _model_sha1 else []),
        f"{name}.params",
        f"{name}-????????.params",
        f"{name}-0000.params",
    ):
        found = sorted(folder.glob(pattern))
        if found:
            return found[0]
    return None


def get_model_file(name: str, root: str = ROOT) -> str:
    """The path of a model's .params file in root: NAME-<hash>.params, as MXNet calls it, or
    NAME.params.

    If there is none and $MXNET_GLUON_REPO names a repository (http://, https:// or file://),
    gluon/models/NAME-<hash>.zip is downloaded from there and verified.
    Raises: ModelFileError that names the missing file and folder; MXNetError if the download fails.
    """
    folder = local_folder(root)
    if folder.is_file():
        return str(folder)
    found = _found(name, folder)
    if found is not None:
        return str(found)
    wanted = f"{name}-{short_hash(name)}" if name in _model_sha1 else name
    if not os.environ.get("MXNET_GLUON_REPO") or name not in _model_sha1:
        raise ModelFileError(
            compose(
                f"model zoo: no file {wanted}.params or {name}.params in {folder}",
                fix=f"put MXNet's file {wanted}.params there, or give root= of its folder, or set"
                " MXNET_GLUON_REPO to a repository that has it",
            )
        )
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as part:
        archive = download(
            _get_repo_file_url("gluon/models", f"{wanted}.zip"), os.path.join(part, "model.zip")
        )
        unpacked = os.path.join(part, "model.params")
        try:
            with (
                zipfile.ZipFile(archive) as z,
                z.open(f"{wanted}.params") as source,
                open(unpacked, "wb") as target,
            ):
                shutil.copyfileobj(source, target)
        except (zipfile.BadZipFile, KeyError) as error:
            raise MXNetError(f"model zoo: {wanted}.zip of the repository: {error}") from error
        if not check_sha1(unpacked, _model_sha1[name]):
            raise InvalidValue(
                f"Downloaded file {wanted}.params has different hash. Please try again."
            )
        replace_file(unpacked, folder / f"{wanted}.params")
    return str(folder / f"{wanted}.params")


def purge(root: str = ROOT) -> None:
    """Deletes all .params files of a folder."""
    for path in local_folder(root).glob("*.params"):
        path.unlink()


def load_pretrained(
    net: Any, name: str, pretrained: bool, ctx: Context | Sequence[Context], root: str
) -> Any:
    """The net, with the parameters of its file if `pretrained`."""
    if pretrained:
        net.load_parameters(get_model_file(name, root), ctx=ctx)
    return net
