"""Parts of loss layers that the passes join: one kernel where the graph spells out several."""

from __future__ import annotations

from ..record import Param, operator, sample, values
from .index import PICK_MODE, _pick_back_ref, _pick_grad_infer
from .softmax import _log_softmax_grad_ref


def _infer(ins, axis, mode):
    return _pick_grad_infer(ins[:2], axis, mode, ins[2].shape)


def _ref(xp, dy, index, y, *, axis, mode):
    return _log_softmax_grad_ref(
        xp, _pick_back_ref(xp, dy, index, axis, mode, y.shape), y, axis=axis
    )


operator(
    "_pick_log_softmax_grad",
    inputs=("dy", "index", "output"),
    params=(Param("axis", "int", -1), PICK_MODE),
    infer=_infer,
    ref=_ref,
    inplace=((2, 0),),
    samples=(
        sample((3,), values([0, 5, -1]), (3, 4)),
        sample((3, 1), values([0, 5, -1]), (3, 4), mode="wrap"),
        sample((2, 4), values([[1, 0, 2, 2], [0, 1, 1, 2]]), (2, 3, 4), axis=1),
    ),
    doc="Gradient of pick(log_softmax(x), index) from log_softmax's output: cross-entropy's.",
)
