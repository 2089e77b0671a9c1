"""Collectives on NDArrays: each is one engine operation, and no call waits. Those that return a new
array are differentiable, and on Symbols they are nodes of a graph (kernels/ops/collective.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine import cpu, waitall
from ..engine.error import InvalidValue, MXNetError, ShapeError, compose
from ..kernels.plan import make_plan
from ..kernels.record import lookup
from ..ndarray import NDArray
from ..ndarray.autograd import pause
from ..ndarray.creation import empty
from ..ndarray.invoke import is_symbol
from ..ndarray.launch import copy_into
from ..ndarray.ndarray import state
from ..ndarray.tape import record, spent
from . import nccl
from .group import Group, check_arrays, check_operation
from .nccl import READ, UPDATE, WRITE
from .world import group_of, init, messages


def run(kind: str, x: NDArray, attrs: dict[str, Any]) -> NDArray:
    """Runs the collective of a graph, between two programs: the hook "collective"."""
    more = {k: v for k, v in attrs.items() if k not in ("ranks", "rank", "alike")}
    with pause():
        return globals()[kind](x, group=group_of(attrs["ranks"]), **more)


def _node(kind: str, x: Any, group: Group, **attrs: Any) -> Any:
    """A collective of a Symbol."""
    attrs.update(ranks=group.ranks, rank=group.rank)
    return x._call_operator(lookup(f"_{kind}"), [x], attrs)


def _noted(kind: str, x: NDArray, made: NDArray, group: Group, **attrs: Any) -> NDArray:
    """`made`, recorded as computed from x."""
    if state.recording and x._tape is not None:
        op = lookup(f"_{kind}")
        full = op.parse({**attrs, "ranks": group.ranks, "rank": group.rank})
        record(make_plan(op, full, [x._spec], x._spec.device), [x], (), [made])
    return made


def _refuse_recorded(arrays: Sequence[NDArray], what: str, fix: str) -> None:
    """Raises MXNetError where a gradient would be lost."""
    if state.recording and any(a._tape is not None and not spent(a._tape) for a in arrays):
        rule = f"{what} has no gradient, but its array is in a graph that autograd records"
        raise MXNetError(compose(rule, fix=fix))


def all_reduce(
    x: Any,
    op: str = "sum",
    *,
    out: Any = None,
    group: Group | None = None,
    name: str = "",
    key: int | None = None,
    priority: int = 0,
    alike: bool = False,
) -> Any:
    """The sum of all ranks' x, on all ranks, with the same bits.

    Its gradient is that of the sum of all ranks' losses: the sum of all ranks' gradients. With
    `alike` all ranks compute the same loss from the result, which counts once: the gradient of
    the result is then that of x.

    Args:
        x: an NDArray of the same shape and dtype on all ranks; or a list of them, which share
            one message.
        op: "sum", "mean", "max", "min" or "prod".
        out: an array to write the result into (x: in place); default: a new one.
        group: default: all ranks.
        name: for errors and the profiler.
        key: of `Group.new_id`, for a call that is repeated: ranks compare its description only at
            the first use.
        priority: of the ready collectives, the one with the highest is sent first.
    Raises MXNetError, at a wait, when ranks do not match or one does not answer.
    """
    check_operation(op)
    group = group or init()
    if is_symbol(x):
        return _node("all_reduce", x, group, op=op, alike=alike)
    arrays = check_arrays(x, "all_reduce")
    if out is not None:
        _refuse_recorded(arrays, "all_reduce with out", "y = dist.all_reduce(x)")
    targets = (
        arrays if out is x else check_arrays(out, "all_reduce: out") if out is not None else None
    )
    with pause():
        if targets is None:
            targets = [empty(a.shape, ctx=a.context, dtype=a.dtype) for a in arrays]
        _check_out(arrays, targets, "all_reduce")
        combine = "sum" if op == "mean" else op
        here = [placed(a, "all_reduce", arrays[0]) for a in arrays]
        results = [
            t
            if t.context.memory == h.context.memory
            else empty(t.shape, ctx=h.context, dtype=t.dtype)
            for t, h in zip(targets, here)
        ]
        n, n_in_place = len(here), sum(a is r for a, r in zip(here, results))
        if 0 < n_in_place < n:
            for a, r in zip(here, results):
                if a is not r:
                    copy_into(a, r)
            n_in_place = n
        same = n_in_place == n
        group.run(
            "all_reduce" if n == 1 else "bucket",
            results if same else [*here, *results],
            [UPDATE] * n if same else [READ] * n + [WRITE] * n,
            (here[0].size if n == 1 else tuple(r.size for r in results), same),
            combine,
            name,
            key,
            priority,
        )
        for r, t in zip(results, targets):
            if op == "mean":
                r /= group.size
            if r is not t:
                copy_into(r, t)
    if out is not None:
        return out
    for a, t in zip(arrays, targets):
        _noted("all_reduce", a, t, group, op=op, alike=alike)
    return targets if isinstance(x, (list, tuple)) else targets[0]


def placed(a: NDArray, kind: str, like: NDArray | None = None) -> NDArray:
    """The array where a collective runs: on its GPU (of `like`) if NCCL does, else on the host."""
    device = (a if like is None else like).context
    if not (device.kind.streams and nccl.takes(kind, a._spec.dtype)):
        device = cpu()
    return a if a.context.memory == device.memory else a.as_in_context(device)


def _check_out(arrays: Sequence[NDArray], targets: Sequence[NDArray], what: str) -> None:
    for a, t in zip(arrays, targets, strict=True):
        if a.shape != t.shape or a.dtype != t.dtype:
            raise ShapeError(what, f"out must have shape {a.shape} and dtype {a._spec.dtype}")


def _two(
    kind: str,
    x: NDArray,
    shape: tuple,
    n: int,
    group: Group,
    arguments: tuple = (),
    operation: str = "sum",
    name: str = "",
    priority: int = 0,
    key: int | None = None,
) -> NDArray:
    """A collective with one input and one new output."""
    with pause():
        here = placed(x, kind)
        made = empty(shape, ctx=here.context, dtype=x.dtype)
        group.run(
            kind, [here, made], [READ, WRITE], (n, *arguments), operation, name, key, priority
        )
        return made if here is x else made.as_in_context(x.context)


def _split(x: NDArray, group: Group, what: str) -> int:
    """The length of each rank's part of axis 0."""
    if not x.shape or x.shape[0] % group.size:
        raise ShapeError(
            what,
            f"axis 0 must be divisible by the number of ranks, got shape {x.shape} for {group.size}"
            " ranks",
        )
    return x.shape[0] // group.size


def reduce_scatter(
    x: NDArray, op: str = "sum", *, group: Group | None = None, name: str = "", priority: int = 0
) -> NDArray:
    """This rank's part, along axis 0, of the sum of all ranks' x. op: "sum", "mean", "max", "min",
    "prod".

    x of shape (size * n, ...) gives (n, ...).
    """
    check_operation(op)
    group = group or init()
    if is_symbol(x):
        return _node("reduce_scatter", x, group, op=op)
    (x,) = check_arrays(x, "reduce_scatter")
    n = _split(x, group, "reduce_scatter")
    combine = "sum" if op == "mean" else op
    made = _two(
        "reduce_scatter",
        x,
        (n, *x.shape[1:]),
        x.size // group.size,
        group,
        (),
        combine,
        name,
        priority,
    )
    if op == "mean":
        with pause():
            made /= group.size
    return _noted("reduce_scatter", x, made, group, op=op)


def all_gather(
    x: NDArray,
    *,
    group: Group | None = None,
    name: str = "",
    key: int | None = None,
    priority: int = 0,
    alike: bool = False,
) -> NDArray:
    """All ranks' x, one after the other along axis 0: (n, ...) gives (size * n, ...). key, alike:
    as of all_reduce."""
    group = group or init()
    if is_symbol(x):
        return _node("all_gather", x, group, alike=alike)
    (x,) = check_arrays(x, "all_gather")
    shape = (group.size * x.shape[0], *x.shape[1:]) if x.shape else (group.size,)
    made = _two("all_gather", x, shape, x.size, group, name=name, priority=priority, key=key)
    return _noted("all_gather", x, made, group, alike=alike)


def all_to_all(
    x: NDArray, *, group: Group | None = None, name: str = "", priority: int = 0
) -> NDArray:
    """Part r, along axis 0, of rank s becomes part s of rank r: (size * n, ...) keeps its shape."""
    group = group or init()
    if is_symbol(x):
        return _node("all_to_all", x, group)
    (x,) = check_arrays(x, "all_to_all")
    _split(x, group, "all_to_all")
    n = x.size // group.size
    made = _two("all_to_all", x, x.shape, n, group, name=name, priority=priority)
    return _noted("all_to_all", x, made, group)


def broadcast(
    x: Any, root: int = 0, *, group: Group | None = None, name: str = "", priority: int = 0
) -> Any:
    """x (an NDArray or a list of them) becomes that of root, in place. Returns x."""
    group = group or init()
    _check_rank(root, group, "broadcast: root")
    arrays = check_arrays(x, "broadcast")
    _refuse_recorded(arrays, "broadcast, which writes in place,", "outside autograd.record()")
    with pause():
        for a in arrays:
            here = placed(a, "broadcast")
            use = UPDATE if group.rank == root else WRITE
            group.run("broadcast", [here], [use], (a.size, root), "sum", name, None, priority)
            if here is not a:
                copy_into(here, a)
    return x


def send(x: NDArray, to: int, *, name: str = "", priority: int = 0) -> None:
    """Sends x to a rank of the world, which calls `receive`. Messages between two ranks match in
    the order of the calls."""
    group = messages()
    _check_rank(to, group, "send: to")
    (x,) = check_arrays(x, "send")
    _refuse_recorded([x], "send", "send x.detach(), and its gradient back; or mx.dist.pipeline")
    with pause():
        _message("send", placed(x, "send"), READ, to, name, priority)


def receive(
    out: NDArray, of: int, *, name: str = "", priority: int = 0, timeout: float | None = None
) -> NDArray:
    """Writes what a rank of the world sends into out, of the same shape and dtype. Returns out.

    timeout: seconds until it fails; default: PLAIT_COMM_TIMEOUT; 0: never.
    """
    group = messages()
    _check_rank(of, group, "receive: of")
    (out,) = check_arrays(out, "receive")
    _refuse_recorded([out], "receive, which writes in place,", "receive into a new array")
    with pause():
        here = placed(out, "receive")
        _message("receive", here, WRITE, of, name, priority, timeout)
        if here is not out:
            copy_into(here, out)
    return out


def _message(
    kind: str,
    x: NDArray,
    use: int,
    peer: int,
    name: str,
    priority: int,
    timeout: float | None = None,
) -> None:
    group = messages()
    if peer == group.rank:
        raise InvalidValue(f"{kind}: rank {peer} is this process\n  fix: x.copy()")
    number = group.message_id(peer, kind == "send")
    group.run(kind, [x], [use], (x.size, peer), "sum", name, number, priority, False, timeout)


def collect(
    value: Any, root: int | None = None, *, group: Group | None = None, name: str = ""
) -> list | None:
    """The values of all ranks, Python objects, in the order of ranks. Waits for all ranks, so it is
    for small objects and rare calls.

    root: only this rank gets them, the others None; default: all do.
    """
    group = group or init()
    if group.size == 1:
        return [value]
    barrier(group, name=f"collect {name}".rstrip())  # raises where ranks call different things
    exchanged = group.communicator
    return exchanged.allgather(value) if root is None else exchanged.gather(value, root)


def barrier(group: Group | None = None, *, name: str = "barrier") -> None:
    """Waits until every rank is here and has done what it pushed before."""
    waitall()
    group = group or init()
    if group.size > 1:
        one = empty((1,), ctx=cpu())
        group.run("all_reduce", [one], [UPDATE], (1, True), "sum", name)
        one.wait_to_read()


def _check_rank(number: int, group: Group, what: str) -> None:
    if not 0 <= number < group.size:
        raise InvalidValue(f"{what} must be of 0 to {group.size - 1}, got {number}")
