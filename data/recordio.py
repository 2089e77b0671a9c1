"""RecordIO files (.rec, .idx): framed byte records, and the header of image records."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np

from ..engine import files
from ..engine.error import InvalidValue, MissingKey, MXNetError
from ..ndarray import codec

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
MAX_PART_BYTES = (1 << 29) - 1
# the part's kind, stored in the top three bits of its length word
WHOLE, FIRST, MIDDLE, LAST = range(4)


def split_at_magic(record: bytes) -> list[bytes]:
    """Splits a record at the magic words in it that are at multiples of four bytes.

    A reader resynchronises at the magic word, so no part may contain one at such an offset.
    """
    parts, start, at = [], 0, record.find(MAGIC_BYTES)
    while at >= 0:
        if at % 4 == 0 and at >= start:
            parts.append(record[start:at])
            start = at + 4
            at = record.find(MAGIC_BYTES, start)
        else:
            at = record.find(MAGIC_BYTES, at + 1)
    parts.append(record[start:])
    return parts


class RecordFileError(MXNetError, FileNotFoundError):
    """A record file that cannot be opened."""


class MissingRecordFile(RecordFileError, FileNotFoundError):
    """A record file that does not exist."""


class MXRecordIO:
    """A file of records, read or written sequentially.

    Args:
        uri: path.
        flag: "r" to read, "w" to write a new file.
    Raises: ValueError for another flag; MXNetError at a broken frame.
    A pickled or forked copy reopens the file when it reads.
    """

    def __init__(self, uri: str, flag: str):
        self.uri, self.flag = os.fspath(uri), flag
        self._file: IO[bytes] | None = None
        self._lock = threading.RLock()
        self.open()

    def open(self) -> None:
        """Opens the file at its beginning."""
        if self.flag not in ("r", "w"):
            raise InvalidValue(f"MXRecordIO: flag must be 'r' or 'w', got {self.flag!r}")
        self.writable = self.flag == "w"
        try:
            self._file = open(self.uri, self.flag + "b")
        except OSError as error:
            kind = MissingRecordFile if isinstance(error, FileNotFoundError) else RecordFileError
            raise kind(f"MXRecordIO: cannot open {self.uri!r}: {error.strerror}") from error
        self._pid = os.getpid()

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def close(self) -> None:
        """Closes the file; closing twice is fine."""
        if self._file is not None:
            if self._pid != os.getpid() and self.writable:
                # a forked child must not flush the parent's buffer: its copy is discarded
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._file.fileno())
                os.close(nowhere)
            self._file.close()
            self._file = None

    def reset(self) -> None:
        """Back to the first record (a file open for writing is emptied)."""
        self.close()
        self.open()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __del__(self):
        if getattr(self, "_file", None) is not None:
            self.close()

    def __getstate__(self):
        if self.writable and self.is_open:
            raise MXNetError(
                f"MXRecordIO: a file that is being written cannot be pickled: {self.uri}\n"
                "  fix: close() it first"
            )
        state = self.__dict__ | {"_was_open": self.is_open, "_file": None}
        del state["_lock"]
        return state

    def __setstate__(self, state):
        was_open = state.pop("_was_open")
        self.__dict__.update(state)
        self._lock = threading.RLock()
        if was_open:
            self.open()

    def _closed(self) -> MXNetError:
        return MXNetError(f"MXRecordIO: {self.uri} is closed\n  fix: open() it")

    def _ready(self, writing: bool) -> IO[bytes]:
        if self._file is None:
            raise self._closed()
        if self.writable != writing:
            verb = "write to" if writing else "read from"
            raise MXNetError(
                f"MXRecordIO: cannot {verb} {self.uri}, it was opened with flag {self.flag!r}"
            )
        # forked: the file position is shared with the parent
        if self._pid != os.getpid():
            if writing:
                raise MXNetError(
                    f"MXRecordIO: {self.uri} was opened for writing by another process"
                )
            self.reset()
        return self._file

    def write(self, buf: Any) -> None:
        """Appends one record (bytes; a str is written as UTF-8)."""
        record = buf.encode() if isinstance(buf, str) else bytes(buf)
        parts = split_at_magic(record)
        if max(map(len, parts)) > MAX_PART_BYTES:
            raise MXNetError(
                f"MXRecordIO: a record must be shorter than 512 MiB, got {len(record)} bytes"
            )
        kinds = [WHOLE] if len(parts) == 1 else [FIRST] + [MIDDLE] * (len(parts) - 2) + [LAST]
        with self._lock:
            file = self._ready(writing=True)
            for kind, part in zip(kinds, parts):
                file.write(struct.pack("<II", MAGIC, kind << 29 | len(part)))
                file.write(part + bytes(-len(part) % 4))

    def read(self) -> bytes | None:
        """The next record, None at the end. Raises MXNetError if the file is truncated or not in
        this format."""
        with self._lock:
            file = self._ready(writing=False)
            parts: list[bytes] = []
            while True:
                at, head = file.tell(), file.read(8)
                if not head and not parts:
                    return None
                if len(head) < 8 or head[:4] != MAGIC_BYTES:
                    self._broken(
                        at,
                        (
                            "is cut off"
                            if len(head) < 8
                            else (
                                f"has magic 0x{int.from_bytes(head[:4], 'little'):08x}, expected"
                                f" 0x{MAGIC:08x}"
                            )
                        ),
                    )
                word = int.from_bytes(head[4:], "little")
                kind, n_bytes = word >> 29, word & MAX_PART_BYTES
                # a damaged length must not allocate 512 MiB
                part = file.read(min(n_bytes, max(0, os.fstat(file.fileno()).st_size - at - 8)))
                if len(part) < n_bytes:
                    self._broken(at, f"is cut off: {n_bytes} bytes announced, {len(part)} left")
                file.read(-n_bytes % 4)
                if (kind in (WHOLE, FIRST)) == bool(parts) or kind > LAST:
                    self._broken(
                        at,
                        f"is of kind {kind} where {'a continuation' if parts else 'a start'} must"
                        " stand",
                    )
                parts.append(part)
                if kind in (WHOLE, LAST):
                    return MAGIC_BYTES.join(parts)

    def _broken(self, at: int, problem: str):
        raise MXNetError(
            f"MXRecordIO: the frame at byte {at} {problem}\n  at: {self.uri}\n"
            "  fix: is it a .rec file, and copied as a whole?"
        )

    def tell(self) -> int:
        """The position in bytes of the next record."""
        if self._file is None:
            raise self._closed()
        return self._file.tell()

    def _go_to(self, position: int) -> None:
        """Reads on at a position that `tell` said."""
        self._ready(writing=False).seek(position)


class MXIndexedRecordIO(MXRecordIO):
    """A file of records with an index, to read them in any order.

    Args:
        idx_path: path of the index, text lines "key<TAB>position".
        uri, flag: as MXRecordIO.
        key_type: makes a key from the index's text.
    """

    def __init__(self, idx_path: str, uri: str, flag: str, key_type: Callable[..., Any] = int):
        self.idx_path, self.key_type = os.fspath(idx_path), key_type
        self.idx: dict = {}
        self.keys: list = []
        self._index_file: IO[str] | None = None
        super().__init__(uri, flag)

    def open(self) -> None:
        super().open()
        self.idx, self.keys = {}, []
        if self.writable:
            self._index_file = open(self.idx_path, "w")
            return
        with files.reading(self.idx_path, "MXIndexedRecordIO"), open(self.idx_path) as lines:
            for n, line in enumerate(lines, 1):
                fields = line.rstrip("\n").split("\t")
                try:
                    self.idx[self.key_type(fields[0])] = int(fields[1])
                except (IndexError, ValueError):
                    raise MXNetError(
                        f"MXIndexedRecordIO: line {n} must be key<TAB>position, got {line!r}\n"
                        f"  at: {self.idx_path}"
                    ) from None
        self.keys = list(self.idx)

    def close(self) -> None:
        super().close()
        if self._index_file is not None:
            self._index_file.close()
            self._index_file = None

    def __getstate__(self):
        return super().__getstate__() | {"_index_file": None}

    def seek(self, idx: Any) -> None:
        """The next read returns the record of this key. Raises KeyError."""
        file = self._ready(writing=False)
        at = self.idx.get(idx)
        if at is None:
            raise MissingKey(
                f"MXIndexedRecordIO: no record has the key {idx!r}, there are {len(self.idx)}\n"
                f"  at: {self.idx_path}"
            )
        if at < 0:
            self._broken(at, "cannot be: places are counted from 0")
        size = os.fstat(file.fileno()).st_size
        if at >= size:
            self._broken(at, f"lies beyond the end of the file, which has {size} bytes")
        file.seek(at)

    def read_idx(self, idx: Any) -> bytes:
        """The record of a key; may be called from many threads."""
        with self._lock:
            self.seek(idx)
            record = self.read()
            assert record is not None  # seek checks whether the key exists
            return record

    def write_idx(self, idx: Any, buf: Any) -> None:
        """Appends a record and its index line."""
        with self._lock:
            key, at = self.key_type(idx), self._ready(writing=True).tell()
            self.write(buf)
            assert self._index_file is not None  # opened with the file
            self._index_file.write(f"{key}\t{at}\n")
            self.idx[key] = at
            self.keys.append(key)


class IRHeader(NamedTuple):
    """The header of an image record: `label` is a number, or an array of `flag` float32."""

    flag: int
    label: float | np.ndarray
    id: int
    id2: int


_HEADER = struct.Struct("<IfQQ")


def pack(header: IRHeader, s: bytes) -> bytes:
    """A header and the bytes that follow it as one record."""
    header = IRHeader(*header)
    if isinstance(header.label, (int, float, np.number)):
        return _HEADER.pack(0, header.label, header.id, header.id2) + s
    label = np.asarray(header.label, np.float32)
    return _HEADER.pack(label.size, 0, header.id, header.id2) + label.tobytes() + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """The header of a record and the bytes after it. Raises MXNetError when the record is too
    short."""
    if len(s) < _HEADER.size:
        raise MXNetError(
            f"recordio.unpack: a record with a header has at least {_HEADER.size} bytes, got"
            f" {len(s)}"
        )
    header, rest = IRHeader(*_HEADER.unpack_from(s)), s[_HEADER.size :]
    if header.flag == 0:
        return header, rest
    if len(rest) < 4 * header.flag:
        raise MXNetError(
            f"recordio.unpack: the header announces {header.flag} labels of 4 bytes, "
            f"{len(rest)} bytes follow"
        )
    label = np.frombuffer(rest, np.float32, header.flag)
    return header._replace(label=label), rest[4 * header.flag :]


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """The header and the decoded image of a record: (H, W, 3) in the order blue, green, red, or (H,
    W).

    iscolor: 1 colour, 0 grey, -1 as stored.
    """
    header, data = unpack(s)
    image = codec.decode(data, iscolor)
    return header, image[..., ::-1] if image.ndim == 3 else image


def pack_img(header: IRHeader, img: np.ndarray, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """A header and an image as one record.

    Args:
        img: uint8, (H, W, 3) in the order blue, green, red, or (H, W).
        quality: JPEG 1..100, PNG 1..9 (compression).
        img_fmt: ".jpg", ".jpeg" or ".png".
    """
    image = np.asarray(img)
    return pack(
        header, codec.encode(image[..., ::-1] if image.ndim == 3 else image, img_fmt, quality)
    )
