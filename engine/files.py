"""Files as wholes: read with an error that names them, written completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
from collections.abc import Iterator
from os import PathLike
from typing import Any

from .error import MXNetError, compose

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # the disk's errors, not the caller's


class FileError(MXNetError, OSError):
    """A file that cannot be read or written."""


class MissingFile(FileError, FileNotFoundError):
    """A file that does not exist."""


class DamagedFile(MXNetError, ValueError):
    """A file or buffer that is not what its format says, or is truncated."""


class OtherFormat(FileError, ValueError):
    """A file whose name says a format that cannot hold the content."""


def is_safetensors(path: str | bytes | PathLike[str]) -> bool:
    """Does a file's name say that it has this format?"""
    return os.fsdecode(path).endswith(".safetensors")


def _check_format(path) -> None:
    if is_safetensors(path):
        rule = f"{os.fspath(path)!r} is named as a safetensors file, which holds arrays by name"
        raise OtherFormat(compose(f"{rule} and nothing else", fix="another ending"))


@contextlib.contextmanager
def reading(
    path: str | PathLike[str], what: str, fix: str | None = None, of_arrays: bool = False
) -> Iterator[None]:
    """Inside, an OSError becomes a FileError "what: cannot read path: why"; so do bytes that are no
    text. of_arrays: a safetensors file is expected where the name says so."""
    if not of_arrays:
        _check_format(path)
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


def read(path: str | PathLike[str], what: str, fix: str | None = None) -> bytes:
    """A file's bytes. what: who reads it, for the error. Raises FileError."""
    with reading(path, what, fix), open(path, "rb") as file:
        return file.read()


def _missing_folder(path: str) -> str | None:
    """The first folder on the way to a file that does not exist."""
    folder, missing = os.path.dirname(os.path.abspath(path)), None
    while not os.path.isdir(folder) and folder != os.path.dirname(folder):
        folder, missing = os.path.dirname(folder), folder
    return missing


def _unwritable(path: str, error: OSError) -> FileError:
    missing = _missing_folder(path)
    if missing is None:
        return FileError(f"cannot write {path!r}: {error.strerror or error}")
    rule = f"cannot write {path!r}: the folder {missing!r} does not exist"
    fix = f"os.makedirs({os.path.dirname(os.path.abspath(path))!r}, exist_ok=True)"
    return MissingFile(compose(rule, fix=fix))


def _claim(part: str) -> int | None:
    """Opens a file and locks it; None while another writer holds it. The lock of a writer that was
    killed is gone: then the file is what it left, and free."""
    while True:
        handle = os.open(part, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.stat(part)):
                os.truncate(handle, 0)
                return handle
        except FileNotFoundError:  # renamed by its writer before we had the lock
            pass
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:  # a file system without locks
            return handle
        os.close(handle)


def _parts(path: str) -> Iterator[str]:
    """Names of files to write beside a path; more than one where several write at a time."""
    yield f"{path}.part"
    yield from (f"{path}.{n}.part" for n in itertools.count(1))


def remove_leftovers(folder: Any, prefix: str) -> None:
    """Deletes what killed writers left of files whose names begin with `prefix`."""
    for name in os.listdir(folder):
        if name.startswith(prefix) and name.endswith(".part"):
            part = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                handle = _claim(part)
                if handle is not None:
                    os.unlink(part)
                    os.close(handle)


def sync(path: str | PathLike[str]) -> None:
    """Waits until a file or folder is on the disk, where its file system supports it."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: str | PathLike[str], of_arrays: bool = False) -> Iterator[str]:
    """Gives the name of a new file, which takes the place of `path` in one step at the end; after
    an error everything is as before, and after a crash or a loss of power `path` is the old file or
    the new one. What is no regular file (a pipe, /dev/null) is written itself.

    The new file is `path`.part; what a killed writer left there is overwritten. of_arrays: a
    safetensors file may be written. Raises FileError where it cannot be made.
    """
    if not of_arrays:
        _check_format(path)
    path = os.path.realpath(path)  # a link stays, its target changes
    if os.path.exists(path) and not os.path.isfile(path):
        yield path
        return
    names, handle, used = _parts(path), None, 0
    while handle is None:
        part, used = next(names), used + 1
        try:
            handle = _claim(part)
        except OSError as error:
            raise _unwritable(path, error) from None
    try:
        try:
            yield part
            sync(part)
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)
            raise
        sync(os.path.dirname(path))
    except OSError as error:
        if isinstance(error, MXNetError) or error.filename != part and error.errno not in DISK:
            raise
        raise _unwritable(path, error) from None
    finally:
        os.close(handle)
        if used == 1 and os.path.exists(other := next(names)):
            remove_leftovers(os.path.dirname(path), os.path.basename(other).removesuffix(".1.part"))


def write(path: str | PathLike[str], content: bytes | bytearray) -> None:
    """Makes a file of these bytes, whole or not at all. Raises FileError."""
    with replacing(path) as part, open(part, "wb") as file:
        file.write(content)
