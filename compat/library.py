"""mx.library: rejects MXNet's binary operator libraries and names the alternative."""

from __future__ import annotations

import os

from ..engine.error import InvalidValue, MXNetError, compose


def load(path: str, verbose: bool = True) -> None:
    """Raises MXNetError: a library built against MXNet's C++ headers cannot be loaded here.

    Raises ValueError unless the path is an absolute path of a library file.
    """
    if not os.path.exists(path):
        raise InvalidValue(f"library.load: no such file: {path}")
    if not os.path.isabs(path):
        raise InvalidValue(
            compose(f"library.load: {path} is not an absolute path", fix=os.path.abspath(path))
        )
    if os.path.splitext(path)[1] not in (".so", ".dll"):
        raise InvalidValue(f"library.load: {path} is not a library file (.so, .dll)")
    raise MXNetError(
        compose(
            f"library.load: {path} holds operators for MXNet's C++ interface, which plait does not"
            " support",
            fix="write the operator in Python: mx.operator.CustomOp, or autograd.Function",
        )
    )
