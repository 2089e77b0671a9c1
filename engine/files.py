"""Files as wholes: read with an error that names them, written completely or not at all."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from .error import MXNetError, compose


class FileError(MXNetError, OSError):
    """A file that cannot be read or written."""


class MissingFile(FileError, FileNotFoundError):
    """A file that does not exist."""


@contextlib.contextmanager
def reading(path, what: str, fix: str | None = None) -> Iterator[None]:
    """Inside, an OSError becomes a FileError "what: cannot read path: why"; so do bytes that are no
    text."""
    try:
        yield
    except MXNetError:
        raise
    except UnicodeDecodeError as error:
        rule = f"{what}: {os.fspath(path)!r} is no {error.encoding} text: {error.reason}"
        raise FileError(compose(rule, fix=fix)) from None
    except OSError as error:
        kind = MissingFile if isinstance(error, FileNotFoundError) else FileError
        rule = f"{what}: cannot read {os.fspath(path)!r}: {error.strerror or error}"
        raise kind(compose(rule, fix=fix)) from None


def read(path, what: str, fix: str | None = None) -> bytes:
    """A file's bytes. what: who reads it, for the error. Raises FileError."""
    with reading(path, what, fix), open(path, "rb") as file:
        return file.read()


@contextlib.contextmanager
def replacing(path) -> Iterator[str]:
    """Gives the name of a new file, which takes the place of `path` in one step at the end; after
    an error everything is as before. What is no regular file (a pipe, /dev/null) is written itself.
    Raises FileError where that file cannot be made.
    """
    path = os.path.realpath(path)  # a link stays, its target changes
    if os.path.exists(path) and not os.path.isfile(path):
        yield path
        return
    part = f"{path}.{os.getpid()}-{threading.get_ident()}.part"
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        if error.filename != part:
            raise
        kind = MissingFile if isinstance(error, FileNotFoundError) else FileError
        raise kind(f"cannot write {path!r}: {error.strerror}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def write(path, content: bytes) -> None:
    """Makes a file of these bytes, whole or not at all. Raises FileError, OSError (a full disk)."""
    with replacing(path) as part, open(part, "wb") as file:
        file.write(content)
