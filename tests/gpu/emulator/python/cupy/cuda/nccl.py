"""NCCL among the emulated devices of one process: when all ranks have called, the work is done."""

import ctypes
import threading

import numpy as np

NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = range(6)
NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16 = range(6, 10)
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)
TYPES = {
    0: np.int8, 1: np.uint8, 2: np.int32, 3: np.uint32, 4: np.int64, 5: np.uint64,
    6: np.float16, 7: np.float32, 8: np.float64,
}  # fmt: skip
REDUCE = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum, 4: np.add}
available = True


class NcclError(RuntimeError):
    pass


_lock = threading.Lock()
_groups: dict[tuple, list["_Meeting"]] = {}
_state = threading.local()


class _Meeting:
    """One collective call of all ranks."""

    def __init__(self, size):
        self.size, self.calls = size, {}
        self.done = threading.Event()
        self.error = None


def get_version():
    return 22000


def get_unique_id():
    return tuple(np.random.default_rng().integers(0, 256, 128).tolist())


def groupStart():
    _state.depth = getattr(_state, "depth", 0) + 1
    _state.calls = getattr(_state, "calls", [])


def groupEnd():
    _state.depth -= 1
    if _state.depth == 0:
        calls, _state.calls = _state.calls, []
        for call in calls:
            call[0]._arrive(*call[1:])
        for call in calls:
            call[0]._finish()


def _floats(raw):
    """bfloat16 as float32."""
    return (raw.astype(np.uint32) << 16).view(np.float32)


def _rounded(x):
    b = x.astype(np.float32).view(np.uint32)
    return ((b + 0x7FFF + (b >> 16 & 1)) >> 16).astype(np.uint16)


def _view(address, count, dtype):
    kind = np.dtype(np.uint16 if dtype == NCCL_BFLOAT16 else TYPES[dtype])
    from . import memory

    raw = (ctypes.c_char * (count * kind.itemsize)).from_address(memory(address))
    return np.frombuffer(raw, kind)


class NcclCommunicator:
    """One rank. Its calls match those of the other ranks by their order."""

    def __init__(self, ndev, commId, rank):
        self.size, self.rank, self.id = ndev, rank, tuple(commId)
        self._count, self._open = 0, []

    @staticmethod
    def initAll(devices):
        devices = list(range(devices)) if isinstance(devices, int) else list(devices)
        name = get_unique_id()
        return [NcclCommunicator(len(devices), name, r) for r in range(len(devices))]

    def rank_id(self):
        return self.rank

    def destroy(self):
        pass

    abort = destroy

    def allReduce(self, send, receive, count, dtype, op, stream):
        self._call("allReduce", send, receive, count, dtype, op, 0, stream)

    def reduce(self, send, receive, count, dtype, op, root, stream):
        self._call("reduce", send, receive, count, dtype, op, root, stream)

    def broadcast(self, send, receive, count, dtype, root, stream):
        self._call("broadcast", send, receive, count, dtype, 0, root, stream)

    def bcast(self, buffer, count, dtype, root, stream):
        self._call("broadcast", buffer, buffer, count, dtype, 0, root, stream)

    def allGather(self, send, receive, count, dtype, stream):
        self._call("allGather", send, receive, count, dtype, 0, 0, stream)

    def reduceScatter(self, send, receive, count, dtype, op, stream):
        self._call("reduceScatter", send, receive, count, dtype, op, 0, stream)

    def _call(self, *call):
        if getattr(_state, "depth", 0):
            _state.calls.append((self, *call))
        else:
            self._arrive(*call)
            self._finish()

    def _arrive(self, kind, send, receive, count, dtype, op, root, stream):
        from . import ExternalStream

        ExternalStream(stream).synchronize()  # what is queued there comes first
        number, self._count = self._count, self._count + 1
        with _lock:
            meetings = _groups.setdefault((self.id, number), [])
            if not meetings:
                meetings.append(_Meeting(self.size))
            meeting = meetings[0]
            meeting.calls[self.rank] = (kind, send, receive, count, dtype, op, root)
            self._open.append(meeting)
            if len(meeting.calls) == meeting.size:
                try:
                    _run([meeting.calls[r] for r in range(meeting.size)])
                except Exception as error:
                    meeting.error = error
                del _groups[self.id, number]
                meeting.done.set()

    def _finish(self):
        while self._open:
            meeting = self._open.pop(0)
            if not meeting.done.wait(60):
                raise NcclError("a collective call waits for ranks that do not come")
            if meeting.error:
                raise NcclError(str(meeting.error))


def _run(calls):
    kind, _, _, count, dtype, op, root = calls[0]
    if any(c[0] != kind or c[3:] != calls[0][3:] for c in calls):
        raise ValueError(f"the ranks call different things: {calls}")
    sent = [_view(c[1], count, dtype).copy() for c in calls]
    wide = [_floats(s) if dtype == NCCL_BFLOAT16 else s for s in sent]
    if kind in ("allReduce", "reduce", "reduceScatter"):
        n = count * len(calls) if kind == "reduceScatter" else count
        if kind == "reduceScatter":
            wide = [_view(c[1], n, dtype).copy() for c in calls]
        total = wide[0]
        for w in wide[1:]:
            total = REDUCE[op](total, w)
        total = total / len(calls) if op == NCCL_AVG else total
        total = _rounded(total) if dtype == NCCL_BFLOAT16 else total
        for r, c in enumerate(calls):
            if kind == "reduceScatter":
                _view(c[2], count, dtype)[:] = total[r * count : (r + 1) * count]
            elif kind == "allReduce" or r == root:
                _view(c[2], count, dtype)[:] = total
    elif kind == "broadcast":
        for c in calls:
            _view(c[2], count, dtype)[:] = sent[root]
    else:
        for c in calls:
            _view(c[2], count * len(calls), dtype)[:] = np.concatenate(sent)
