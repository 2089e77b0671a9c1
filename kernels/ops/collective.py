"""Collectives: what the ranks of a group compute together by messages. A graph is cut at them; each
is an engine operation between two programs (graph/placement.py), pushed by `dist/collectives.py`.

`ranks`: the group, as numbers in the world; `rank`: this process' position among them. `alike`:
what reads the result is the same computation with the same values on all ranks. Then its gradient
is the same on all ranks, and counts once. Else gradients are those of the sum of all ranks' losses.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...engine.error import OperatorError, ShapeError
from ..pointwise import pointwise
from ..record import Param, Type, operator, sample
from ..traits import Collective, Decomposition

GROUP = (
    Param("ranks", "shape", doc="the ranks of the group"),
    Param("rank", "int", doc="the position of this process among them"),
)
ALIKE = Param("alike", "bool", False, doc="do all ranks use the result alike?")
OPERATION = Param("op", ("sum", "mean", "max", "min", "prod"), "sum", doc="how values are combined")


def _alone(xp, x, ranks, **_):
    """The result in a group of one rank."""
    if len(ranks) != 1:
        raise OperatorError("collective", f"ranks {ranks} cannot communicate inside a kernel")
    return x


def _check(name: str, ranks: Sequence[int], rank: int) -> None:
    if not 0 <= rank < len(ranks):
        raise OperatorError(name, f"rank must be of 0 to {len(ranks) - 1}, got {rank}")


def _first_axis(name: str, t: Type, ranks: Sequence[int], rank: int) -> int:
    _check(name, ranks, rank)
    if not t.shape or t.shape[0] % len(ranks):
        raise ShapeError(
            name, f"axis 0 must be divisible by the {len(ranks)} ranks, got shape {t.shape}"
        )
    return t.shape[0] // len(ranks)


def _linear(name: str, op: str) -> None:
    if op not in ("sum", "mean"):
        raise OperatorError(name, f"op={op!r} has no gradient", fix='op="sum" or "mean"')


def _all_reduce_grad(F, dys, xs, ys, ranks, rank, op, alike):
    _linear("_all_reduce", op)
    if not alike:
        return [F._all_reduce(dys[0], ranks=ranks, rank=rank, op=op)]
    return [dys[0] if op == "sum" else dys[0] * (1 / len(ranks))]


def _reduced(ins, ranks, rank, op, alike):
    _check("_all_reduce", ranks, rank)
    return [ins[0]]


operator(
    "_all_reduce",
    params=(*GROUP, OPERATION, ALIKE),
    infer=_reduced,
    ref=_alone,
    grad=_all_reduce_grad,
    traits=(Collective("all_reduce"),),
    samples=(sample((2, 3), ranks=(0,), rank=0), sample((2,), ranks=(0,), rank=0, alike=True)),
    doc="The combination of all ranks' data, on all ranks.",
)


def _gathered(ins, ranks, rank, alike):
    _check("_all_gather", ranks, rank)
    shape, dtype, _ = ins[0]
    return [Type((len(ranks) * shape[0], *shape[1:]) if shape else (len(ranks),), dtype)]


def _all_gather_grad(F, dys, xs, ys, ranks, rank, alike):
    if alike:
        found = F._own_part(dys[0], ranks=ranks, rank=rank)
    else:
        found = F._reduce_scatter(dys[0], ranks=ranks, rank=rank)
    return [found if xs[0].shape else F.reshape(found, shape=xs[0].shape)]


operator(
    "_all_gather",
    params=(*GROUP, ALIKE),
    infer=_gathered,
    ref=lambda xp, x, ranks, rank, alike: xp.atleast_1d(_alone(xp, x, ranks)),
    grad=_all_gather_grad,
    traits=(Collective("all_gather"),),
    samples=(
        sample((2, 3), ranks=(0,), rank=0),
        sample((), ranks=(0,), rank=0),
        sample((2,), ranks=(0,), rank=0, alike=True),
    ),
    doc="All ranks' data, one after the other along axis 0.",
)


def _scattered(ins, ranks, rank, op):
    shape, dtype, _ = ins[0]
    return [Type((_first_axis("_reduce_scatter", ins[0], ranks, rank), *shape[1:]), dtype)]


def _reduce_scatter_grad(F, dys, xs, ys, ranks, rank, op):
    _linear("_reduce_scatter", op)
    dy = dys[0] if op == "sum" else dys[0] * (1 / len(ranks))
    return [F._all_gather(dy, ranks=ranks, rank=rank)]


operator(
    "_reduce_scatter",
    params=(*GROUP, OPERATION),
    infer=_scattered,
    ref=_alone,
    grad=_reduce_scatter_grad,
    traits=(Collective("reduce_scatter"),),
    samples=(sample((2, 3), ranks=(0,), rank=0),),
    doc="This rank's part, along axis 0, of the combination of all ranks' data.",
)


def _exchanged(ins, ranks, rank):
    _first_axis("_all_to_all", ins[0], ranks, rank)
    return [ins[0]]


operator(
    "_all_to_all",
    params=GROUP,
    infer=_exchanged,
    ref=_alone,
    grad=lambda F, dys, xs, ys, ranks, rank: [F._all_to_all(dys[0], ranks=ranks, rank=rank)],
    traits=(Collective("all_to_all"),),
    samples=(sample((2, 3), ranks=(0,), rank=0),),
    doc="Part r, along axis 0, of rank s becomes part s of rank r.",
)


def _own(ins, ranks, rank):
    shape, dtype, _ = ins[0]
    return [Type((_first_axis("_own_part", ins[0], ranks, rank), *shape[1:]), dtype)]


def _own_slice(x, ranks, rank):
    n = x.shape[0] // len(ranks)
    return rank * n, rank * n + n


operator(
    "_own_part",
    params=GROUP,
    infer=_own,
    ref=lambda xp, x, ranks, rank: x[slice(*_own_slice(x, ranks, rank))],
    grad=lambda F, dys, xs, ys, ranks, rank: [
        F._all_gather(dys[0], ranks=ranks, rank=rank, alike=True)
    ],
    traits=(
        Decomposition(
            lambda F, x, ranks, rank: [
                F.slice_axis(
                    x,
                    axis=0,
                    begin=_own_slice(x, ranks, rank)[0],
                    end=_own_slice(x, ranks, rank)[1],
                )
            ]
        ),
    ),
    samples=(sample((2, 3), ranks=(0,), rank=0),),
    doc="This rank's part, along axis 0, of data that all ranks have. Its gradient is gathered.",
)
pointwise(
    "_shared",
    "x",
    ref=lambda xp, x, ranks, rank: x,
    dtypes="all",
    native=True,
    params=GROUP,
    grad=lambda F, dy, x, y, ranks, rank: F._all_reduce(dy, ranks=ranks, rank=rank, alike=True),
    samples=(sample((2, 3), ranks=(0,), rank=0),),
    doc="data, which all ranks have and of which each computes something else: its gradient is the"
    " sum of theirs.",
)
