"""Groups: ranks that communicate, and the schedules that they run as engine operations."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from ..engine import Var, cpu, is_naive, location, raise_last, settings, wait
from ..engine._core import ffi, lib
from ..engine.error import InvalidType, InvalidValue
from ..engine.recent import Recent
from ..kernels.plan import comm_plan
from ..kernels.record import lookup
from ..kernels.spec import spec
from ..ndarray import NDArray
from ..ndarray.creation import empty
from ..ndarray.launch import copy_into
from . import nccl, schedules
from .nccl import UPDATE, WRITE
from .schedules import Place, Schedule

COMBINE = {"sum": "add_n", "max": "broadcast_maximum", "min": "broadcast_minimum"}
COMBINE["prod"] = "broadcast_mul"


class Group:
    """Ranks that communicate: rank (of this process, in the group), size, ranks (their numbers in
    the world)."""

    def __init__(self, rank: int, ranks: Sequence[int], communicator: Any = None, handle: int = 0):
        self.rank, self.ranks, self.size = rank, tuple(ranks), len(ranks)
        self.communicator = communicator  # of mpi4py, or None for a group of one
        made = lib.pl_group_new(handle, rank, self.size, ffi.new("int32_t[]", list(ranks)))
        self.handle = ffi.gc(ffi.cast("void *", made), _free_group)
        self._schedules: Recent = Recent(1024)
        self._kept = itertools.count()  # ids of what is used again, in the order of the program
        self._single = itertools.count()
        self._described: set = set()
        self.kept: WeakKeyDictionary = WeakKeyDictionary()  # ids of new_id, by what they belong to
        self._messages: dict[tuple[int, bool], itertools.count] = {}
        self._cliques: dict[int, nccl.Clique] = {}  # by the number of this process' device

    def __repr__(self):
        return f"<Group rank {self.rank} of {self.size}: {list(self.ranks)}>"

    def new_id(self) -> int:
        """An id for a collective that is run again and again, one after the other."""
        found = next(self._kept)
        if found >= lib.pl_group_ids() // 2 and self.size > 1:
            raise InvalidValue(
                f"group: at most {lib.pl_group_ids() // 2} keys can communicate\n  fix: fewer,"
                " larger arrays"
            )
        return found

    def _single_id(self) -> int:
        half = max(1, lib.pl_group_ids() // 2)
        return half + next(self._single) % half

    def message_id(self, peer: int, sends: bool) -> int:
        """The id of the next message to or from a rank: both sides count."""
        count = self._messages.setdefault((peer, sends), itertools.count())
        return next(count) % max(1, lib.pl_group_ids())

    def schedule(self, kind: str, dtype: str, operation: str, *arguments: Any) -> Any:
        """The handle of a schedule: made once."""
        key = (kind, dtype, operation, arguments)
        found = self._schedules[key]
        if found is None:
            found = self._schedules[key] = self._make(*key)
        return found

    def _make(self, kind, dtype, operation, arguments):
        itemsize = spec((1,), dtype, cpu()).nbytes
        made = getattr(schedules, kind)(
            *arguments[:1], self.size, self.rank, itemsize, *arguments[1:]
        )
        return compile_schedule(made, dtype, itemsize, operation)

    def run(
        self,
        kind: str,
        arrays: Sequence[NDArray],
        uses: Sequence[int],
        arguments: tuple,
        operation: str = "sum",
        name: str = "",
        key: int | None = None,
        priority: int = 0,
        compared: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Pushes a collective: over MPI for arrays of the host, over NCCL for those of GPUs.

        arrays: dense, of one dtype, in one memory; uses: READ, WRITE or UPDATE of each.
        key: of new_id, for a collective that all ranks run again; its description is compared
            with the other ranks' only once. compared: False: never.
        timeout: seconds until it fails; default: PLAIT_COMM_TIMEOUT; 0: never.
        """
        dtype, streams = arrays[0]._spec.dtype, arrays[0].context.kind.streams
        described, text = (key, kind, dtype, operation, arguments), ""
        if compared and (key is None or described not in self._described):
            if key is not None:
                self._described.add(described)
            shapes = ", ".join(dict.fromkeys(str(a.shape) for a in arrays))
            what = f"{kind} {operation} {dtype} {shapes} {name}".rstrip() + " on GPUs" * streams
            text = f"{what}\n    at: {location.text(location.capture()) or 'unknown'}"
        called = f"{kind} {name}".rstrip()
        if not streams:
            schedule = self.schedule(kind, dtype, operation, *arguments)
            self._push(schedule, arrays, uses, text, called, key, priority, timeout)
        elif self.size == 1:
            half = len(arrays) // 2  # sources and targets; or one that stays
            for source, target in zip(arrays[:half], arrays[half:]):
                if source is not target:
                    copy_into(source.reshape(target.shape), target)
        else:
            clique, known = self._clique(arrays[0].context.device_id), None
            if text:  # ranks that do not match must not reach NCCL
                known = Var()
                compare = self.schedule("nothing", dtype, operation)
                self._push(compare, [known], [WRITE], text, called, key, priority, timeout)
            calls = nccl.steps(kind, self.size, *arguments)
            clique.push(
                calls, arrays, uses, operation, called, known._handle if known else 0, timeout
            )

    def _clique(self, device: int) -> nccl.Clique:
        """The communicator of this process' device with those of the other ranks."""
        found = self._cliques.get(device)
        if found is None:
            handle = int(ffi.cast("uintptr_t", self.handle))
            found = self._cliques[device] = nccl.Clique(self.size, self.rank, [device], handle)
            if self.rank == 0:
                number = nccl.new_number()
            else:
                number = empty((lib.PL_NCCL_ID_BYTES,), ctx=cpu(), dtype="uint8")
            use = UPDATE if self.rank == 0 else WRITE
            self.run("broadcast", [number], [use], (number.size, 0), name="NCCL's start")
            found.join(number)
        return found

    def _push(
        self,
        schedule: Any,
        arrays: Sequence[Any],
        uses: Sequence[int],
        description: str,
        name: str,
        key: int | None,
        priority: int,
        timeout: float | None,
    ) -> None:
        """Pushes a schedule, for MPI. description: "": it is not compared."""
        number = self._single_id() if key is None else key  # once: ranks count alike
        text = description.encode()[:500] if description else ffi.NULL
        at = location.capture()
        status = lib.PL_AGAIN
        while status == lib.PL_AGAIN:
            status = lib.pl_schedule_push(
                ffi.cast("uintptr_t", schedule),
                ffi.cast("uintptr_t", self.handle),
                [a._handle for a in arrays],
                bytes(uses),
                number,
                text,
                priority,
                settings.get("PLAIT_COMM_TIMEOUT") if timeout is None else timeout,
                lib.pl_name(name.encode()),
                at,
            )
        if status:
            raise_last()
        if is_naive():
            for a in arrays:
                wait(a._handle)


def _free_group(handle) -> None:
    lib.pl_group_free(int(ffi.cast("uintptr_t", handle)))


def _free_schedule(handle) -> None:
    lib.pl_schedule_free(int(ffi.cast("uintptr_t", handle)))


def compile_schedule(made: Schedule, dtype: str, itemsize: int, operation: str) -> Any:
    """The core's form of a schedule: a handle that frees it."""
    rounds: list[tuple[int, int, int]] = []
    slices: list[tuple[int, int]] = []
    places: list[tuple[int, int, int]] = []
    plans: list[Any] = []
    steps: list[tuple] = []
    numbers: dict[tuple[int, int], int] = {}

    def place(p: Place) -> tuple:
        return p.start * itemsize, p.array, 0

    def plan_of(n: int, n_in: int) -> int:
        if (n, n_in) not in numbers:
            numbers[n, n_in] = len(plans)
            plans.append(_combine_plan(operation, dtype, n, n_in))
        return numbers[n, n_in]

    def add(step: schedules.Step) -> None:
        operands, first = step.operands, len(places)
        number = -1
        if step.kind == schedules.COMBINE:
            if operation != "sum" and len(operands) > 2:  # pair by pair
                # in what another rank sent: not in this rank's values, which may be the target
                own = operands[0].array != schedules.SCRATCH or operands[0] == step.at
                so_far = operands[own]
                for operand in operands[1:-1]:
                    before = operands[0] if operand is operands[1] else so_far
                    add(step._replace(at=so_far, operands=(before, operand)))
                add(step._replace(operands=(so_far, operands[-1])))
                return
            number = plan_of(step.n, len(operands))
        places.extend(place(p) for p in operands)
        steps.append(
            (place(step.at), step.n * itemsize, step.kind, step.peer, number, first, len(operands))
        )

    for slice_rounds in made.slices:
        slices.append((len(rounds), len(slice_rounds)))
        for messages, local in slice_rounds:
            first = len(steps)
            for step in (*messages, *local):
                add(step)
            rounds.append((first, len(messages), len(steps) - first))
    tables = {
        "steps": ffi.new("pl_step[]", steps),
        "places": ffi.new("pl_place[]", places),
        "rounds": ffi.new("pl_round[]", rounds),
        "slices": ffi.new("pl_slice[]", slices),
        "plans": ffi.new("uintptr_t[]", [p.handle for p in plans]),
    }
    described = ffi.new("pl_schedule_spec *", tables)
    described.n_steps, described.n_places = len(steps), len(places)
    described.n_rounds, described.n_slices = len(rounds), len(slices)
    described.n_plans, described.n_arrays = len(plans), made.n_arrays
    described.n_slots = min(schedules.SLOTS, len(slices))
    described.scratch_bytes = -(-made.scratch * itemsize // 64) * 64
    handle = lib.pl_schedule_new(described)
    if not handle:
        raise_last()
    return ffi.gc(ffi.cast("void *", handle), _free_schedule)


def _combine_plan(operation: str, dtype: str, n: int, n_in: int):
    op = lookup(COMBINE[operation])
    attrs = op.parse({"num_args": n_in} if operation == "sum" else {})
    return comm_plan(op, attrs, [spec((n,), dtype, cpu())] * n_in, cpu())


def check_operation(operation: str) -> None:
    """Raises InvalidValue for an unknown one."""
    if operation not in (*COMBINE, "mean"):
        raise InvalidValue(
            f"op={operation!r}: unknown\n  fix: one of {', '.join([*COMBINE, 'mean'])}"
        )


def check_arrays(arrays: Any, what: str) -> list[NDArray]:
    """A list of dense NDArrays. Raises InvalidType."""
    some = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
    for a in some:
        if not isinstance(a, NDArray) or a.stype != "default":
            kind = a.stype if isinstance(a, NDArray) else type(a).__name__
            raise InvalidType(f"{what}: needs dense NDArrays, got {kind}")
    return some
