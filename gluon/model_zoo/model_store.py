"""Files with trained parameters: found in a folder, never downloaded."""

from __future__ import annotations

import os
from pathlib import Path

from ...engine import cpu
from ...engine.error import MXNetError, compose

ROOT = os.path.join("~", ".mxnet", "models")  # where files are looked for by default
CPU = cpu()


class ModelFileError(MXNetError, FileNotFoundError):
    """No file with the parameters of a model."""


def get_model_file(name: str, root=ROOT) -> str:
    """The path of a model's .params file: NAME-<hash>.params, as MXNet calls it, or NAME.params.

    Raises ModelFileError with the places that were looked at.
    """
    folder = Path(root).expanduser()
    if folder.is_file():
        return str(folder)
    for pattern in (f"{name}-????????.params", f"{name}.params", f"{name}-0000.params"):
        found = sorted(folder.glob(pattern))
        if found:
            return str(found[0])
    raise ModelFileError(
        compose(
            f"model zoo: no file {name}.params or {name}-<hash>.params in {folder}",
            fix="put MXNet's file there, or give root=",
        )
    )


def purge(root=ROOT) -> None:
    """Deletes all .params files of a folder."""
    for path in Path(root).expanduser().glob("*.params"):
        path.unlink()


def load_pretrained(net, name: str, pretrained, ctx, root):
    """The net, with the parameters of its file if `pretrained`."""
    if pretrained:
        net.load_parameters(get_model_file(name, root), ctx=ctx)
    return net
