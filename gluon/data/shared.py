"""Sends Python objects between processes, with their arrays in shared memory.

The sender owns the segments: it copies the arrays of a message into a free segment and sends its
name with the pickled rest. The receiver copies the arrays out, and releases the segment with its
next message.
"""

from __future__ import annotations

import _posixshmem
import io
import os
import pickle
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from ...ndarray.ndarray import NDArray, from_memory
from ...ndarray.numpy_mode import is_np_array

MAX_BODY_BYTES = 16384  # of a message in a pipe; a larger pickle goes through shared memory too
ALIGNMENT = 64


class Stacked:
    """NumPy arrays of one shape and dtype that become one NDArray where they are received; they are
    stacked in the shared memory."""

    __slots__ = ("items",)

    def __init__(self, items: list[np.ndarray]):
        self.items = items

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.items), *self.items[0].shape)

    @property
    def dtype(self) -> np.dtype:
        return self.items[0].dtype


def _receive_values(buffer, dtype, shape) -> np.ndarray:
    return np.frombuffer(buffer, dtype).reshape(shape).copy()


def _receive_array(buffer, dtype, shape, of_np) -> NDArray:
    made = from_memory(np.frombuffer(buffer, dtype).reshape(shape))
    return made.as_np_ndarray() if of_np else made


class _Pickler(pickle.Pickler):
    """Arrays are pickled out of band; `stacks` holds the Stacked whose buffers have only a size so
    far."""

    inline = False

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.stacks: dict[int, Stacked] = {}

    def reducer_override(self, item: Any) -> Any:
        kind = item.__class__
        if kind is Stacked:
            if self.inline:
                return _receive_array, (*_parts(np.stack(item.items)), is_np_array())
            place = np.empty(item.shape, item.dtype)  # its pages are never accessed
            self.stacks[place.ctypes.data] = item
            return _receive_array, (*_parts(place), is_np_array())
        if isinstance(item, NDArray) and item.stype == "default":
            return _receive_array, (*_parts(item.asnumpy()), kind is not NDArray)
        if kind is np.ndarray and not item.dtype.hasobject:
            return _receive_values, _parts(item)
        return NotImplemented


def _parts(values: np.ndarray):
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return pickle.PickleBuffer(flat.data), values.dtype, values.shape


def _memory(segment: SharedMemory) -> memoryview:
    """The memory of an open segment."""
    assert segment.buf is not None
    return segment.buf


class Sender:
    """Packs messages into segments named prefix0, prefix1, ...; close() removes them."""

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._segments: dict[str, SharedMemory] = {}
        self._free: list[str] = []

    def release(self, names: Any) -> None:
        """The receiver no longer needs these segments."""
        self._free.extend(names)

    def pack(self, message: Any) -> tuple:
        """Packs a message for `Receiver.unpack`; small enough for a pipe."""
        buffers: list[pickle.PickleBuffer] = []
        body = io.BytesIO()
        pickler = _Pickler(body, protocol=5, buffer_callback=buffers.append)
        pickler.dump(message)
        raw = [b.raw() for b in buffers]
        inline = body.tell() <= MAX_BODY_BYTES
        if not inline:
            raw.append(body.getbuffer())
        if not raw:
            return body.getvalue(), None, ()
        places, total = [], 0
        for buffer in raw:
            places.append((total, buffer.nbytes))
            total += -(-buffer.nbytes // ALIGNMENT) * ALIGNMENT
        try:
            segment = self._segment(max(total, 1))
        # shared memory is full, as in containers with a small /dev/shm: use the pipe
        except OSError:
            return _inline(message), None, ()
        memory = _memory(segment)
        for (start, size), buffer in zip(places, raw):
            whole = np.frombuffer(buffer, np.uint8)
            stacked = pickler.stacks.get(whole.ctypes.data) if size else None
            if stacked is None:
                memory[start : start + size] = buffer
            else:
                out = np.frombuffer(memory, stacked.dtype, size // stacked.dtype.itemsize, start)
                np.stack(stacked.items, out=out.reshape(stacked.shape))
        return body.getvalue() if inline else None, segment.name, tuple(places)

    def _segment(self, n_bytes: int) -> SharedMemory:
        for name in self._free:
            if self._segments[name].size >= n_bytes:
                self._free.remove(name)
                return self._segments[name]
        segment = SharedMemory(f"{self._prefix}{len(self._segments)}", create=True, size=n_bytes)
        try:  # a write to pages that do not exist would end this process by SIGBUS
            os.posix_fallocate(vars(segment)["_fd"], 0, n_bytes)
        except OSError:
            segment.close()
            segment.unlink()
            raise
        self._segments[segment.name] = segment
        return segment

    def close(self) -> None:
        # the last first: if this process is killed meanwhile, the receiver can find the others
        for segment in reversed(self._segments.values()):
            segment.close()
            try:
                segment.unlink()
            except FileNotFoundError:  # the receiver assumed that this process died
                pass


def _inline(message) -> bytes:
    """The message pickled with its arrays."""
    body = io.BytesIO()
    pickler = _Pickler(body, protocol=5)
    pickler.inline = True
    pickler.dump(message)
    return body.getvalue()


class Receiver:
    """Unpacks the messages of one sender; keeps track of which of its segments are free."""

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._segments: dict[str, SharedMemory] = {}
        self._done: list[str] = []

    def unpack(self, packed: tuple) -> Any:
        body, name, places = packed
        if name is None:
            return pickle.loads(body)
        segment = self._segments.get(name)
        if segment is None:
            segment = self._segments[name] = SharedMemory(name)
        memory = _memory(segment)
        views = [memory[start : start + size] for start, size in places]
        try:
            return (
                pickle.loads(body, buffers=views)
                if body is not None
                else pickle.loads(views[-1], buffers=views[:-1])
            )
        finally:
            for view in views:
                view.release()
            self._done.append(name)

    def drop(self, packed: tuple) -> None:
        """Drops a message that will not be used."""
        if packed[1] is not None:
            self._done.append(packed[1])

    def free(self) -> list[str]:
        """The names of segments that the sender may use again; each is returned once."""
        done, self._done = self._done, []
        return done

    def close(self, sender_died: bool = False) -> None:
        """Closes the segments; removes them if the sender died."""
        for segment in self._segments.values():
            segment.close()
        if sender_died:
            n = 0
            while _remove(f"{self._prefix}{n}"):
                n += 1


def _remove(name: str) -> bool:
    try:
        segment = SharedMemory(name)
    except FileNotFoundError:
        return False
    except ValueError:  # empty: its creator was killed before setting its size
        _posixshmem.shm_unlink(f"/{name}")
        return True
    segment.close()
    segment.unlink()
    return True
