"""Python objects from one process to another, their arrays through shared memory.

The sender owns the segments. It copies the arrays of a message into a free one and sends its name
with the pickled rest; the receiver copies them out and names the segment free again in its next
message.
"""

from __future__ import annotations

import _posixshmem
import io
import os
import pickle
from multiprocessing.shared_memory import SharedMemory

import numpy as np

from ...ndarray.ndarray import NDArray, from_memory

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


def _receive_array(buffer, dtype, shape) -> NDArray:
    return from_memory(np.frombuffer(buffer, dtype).reshape(shape))


class _Pickler(pickle.Pickler):
    """Arrays go out of band; `stacks` has the Stacked whose buffers have only their size yet."""

    inline = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.stacks: dict[int, Stacked] = {}

    def reducer_override(self, item):
        kind = item.__class__
        if kind is Stacked:
            if self.inline:
                return _receive_array, _parts(np.stack(item.items))
            place = np.empty(item.shape, item.dtype)  # its pages are never touched
            self.stacks[place.ctypes.data] = item
            return _receive_array, _parts(place)
        if kind is NDArray:
            return _receive_array, _parts(item.asnumpy())
        if kind is np.ndarray and not item.dtype.hasobject:
            return _receive_values, _parts(item)
        return NotImplemented


def _parts(values: np.ndarray):
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return pickle.PickleBuffer(flat), values.dtype, values.shape


class Sender:
    """Packs messages into segments named prefix0, prefix1, ...; close() removes them."""

    def __init__(self, prefix: str):
        self._prefix, self._segments, self._free = prefix, {}, []

    def release(self, names) -> None:
        """The receiver needs these segments no more."""
        self._free.extend(names)

    def pack(self, message) -> tuple:
        """What `Receiver.unpack` makes the message from; small enough for a pipe."""
        buffers, body = [], io.BytesIO()
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
        except OSError:  # no room, as in containers with little /dev/shm: through the pipe
            return _inline(message), None, ()
        for (start, size), buffer in zip(places, raw):
            whole = np.frombuffer(buffer, np.uint8)
            stacked = pickler.stacks.get(whole.ctypes.data) if size else None
            if stacked is None:
                segment.buf[start : start + size] = buffer
            else:
                out = np.frombuffer(
                    segment.buf, stacked.dtype, size // stacked.dtype.itemsize, start
                )
                np.stack(stacked.items, out=out.reshape(stacked.shape))
        return body.getvalue() if inline else None, segment.name, tuple(places)

    def _segment(self, n_bytes: int) -> SharedMemory:
        for name in self._free:
            if self._segments[name].size >= n_bytes:
                self._free.remove(name)
                return self._segments[name]
        segment = SharedMemory(f"{self._prefix}{len(self._segments)}", create=True, size=n_bytes)
        try:  # a write to pages that do not exist would end this process by SIGBUS
            os.posix_fallocate(segment._fd, 0, n_bytes)
        except OSError:
            segment.close()
            segment.unlink()
            raise
        self._segments[segment.name] = segment
        return segment

    def close(self) -> None:
        # the last first: if this process is killed meanwhile, the receiver finds the others
        for segment in reversed(self._segments.values()):
            segment.close()
            try:
                segment.unlink()
            except FileNotFoundError:  # the receiver thought this process dead
                pass


def _inline(message) -> bytes:
    """The message pickled with its arrays."""
    body = io.BytesIO()
    pickler = _Pickler(body, protocol=5)
    pickler.inline = True
    pickler.dump(message)
    return body.getvalue()


class Receiver:
    """Unpacks the messages of one sender; knows which of its segments are free again."""

    def __init__(self, prefix: str):
        self._prefix, self._segments, self._done = prefix, {}, []

    def unpack(self, packed: tuple):
        body, name, places = packed
        if name is None:
            return pickle.loads(body)
        segment = self._segments.get(name)
        if segment is None:
            segment = self._segments[name] = SharedMemory(name)
        views = [segment.buf[start : start + size] for start, size in places]
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
        """Leaves the segments; removes them if the sender cannot."""
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
    except ValueError:  # empty: its maker was killed before it could give it a size
        _posixshmem.shm_unlink(f"/{name}")
        return True
    segment.close()
    segment.unlink()
    return True
