"""autograd: recording scopes, and backward, which runs a compiled gradient program of the tape, or,
if there is none, the gradient of each call."""

from __future__ import annotations

from typing import Any

from ..engine import hooks, layers, location
from ..engine.error import DTypeError, InvalidValue, MXNetError, ShapeError
from ..graph.graph import variable
from ..graph.runner import ROWS
from ..kernels import precision
from ..kernels.plan import Plan
from ..kernels.traits import Lowered
from . import functions as F
from . import watch
from .backward import TapeGraph, deliver_rows, name_layers, program_of, reachable, source
from .launch import copy_into
from .ndarray import NDArray, Scope, check_nd, state
from .tape import TapeNode, Variable, plan_node, shadow

# ---- scopes --------------------------------------------------------------------------------------


def is_recording() -> bool:
    """Is this thread recording operations for backward?"""
    state.asked_recording = True  # a graph traced meanwhile is valid for this result only
    return state.recording


def is_training() -> bool:
    """Do train-aware operators (Dropout, BatchNorm) of this thread behave as in training?"""
    return state.training


def set_recording(is_recording: bool) -> bool:
    """Switches recording for this thread; returns the previous state."""
    previous, state.recording = state.recording, bool(is_recording)
    return previous


def set_training(train_mode: bool) -> bool:
    """Switches training mode for this thread; returns the previous state."""
    previous, state.training = state.training, bool(train_mode)
    return previous


def record(train_mode: bool = True) -> Scope:
    """Scope in which operations are recorded (and training mode is on)."""
    return Scope(True, train_mode)


def pause(train_mode: bool = False) -> Scope:
    """Scope in which nothing is recorded."""
    return Scope(False, train_mode)


def train_mode() -> Scope:
    """Scope in which train-aware operators behave as in training; recording does not change."""
    return Scope(None, True)


def predict_mode() -> Scope:
    """Scope in which train-aware operators behave as in prediction; recording does not change."""
    return Scope(None, False)


REQUESTS: dict[Any, str] = {0: "null", 1: "write", 3: "add"}  # MXNet's numbers


def mark_variables(variables: Any, gradients: Any, grad_reqs: str = "write") -> None:
    """Marks arrays as variables whose gradients are written to the given arrays. grad_reqs: write,
    add or null, one or a list."""
    variables = variables if isinstance(variables, (list, tuple)) else [variables]
    gradients = gradients if isinstance(gradients, (list, tuple)) else [gradients]
    reqs = [grad_reqs] * len(variables) if isinstance(grad_reqs, (str, int)) else list(grad_reqs)
    if not len(variables) == len(gradients) == len(reqs):
        raise MXNetError(
            "mark_variables: needs as many gradients and requests as variables, got"
            f" {len(variables)}, {len(gradients)} and {len(reqs)}"
        )
    for array, grad, req in zip(variables, gradients, reqs):
        check_nd(array, "mark_variables: every variable")
        req = REQUESTS.get(req, req)
        if req not in ("write", "add", "null"):
            raise MXNetError(f"grad_req must be write, add or null, got {req!r}")
        if grad is not None and (grad.__class__ is not NDArray or grad._spec is not array._spec):
            check_nd(grad, "mark_variables: every gradient")
            _check_gradient("mark_variables", "gradient", "the variable", grad, array)
        array._tape = None if req == "null" else Variable(array, grad, req)


def _check_gradient(who: str, what: str, whose: str, grad: NDArray, array: NDArray) -> None:
    """A gradient has its array's shape and dtype. Raises ShapeError, DTypeError."""
    if grad.shape != array.shape:
        rule = f"{what} must have {whose}'s shape {array.shape}, got {grad.shape}"
        raise ShapeError(who, rule)
    wanted, given = array._spec.dtype, grad._spec.dtype
    if given != wanted:
        rule = f"{what} must have {whose}'s dtype {wanted}, got {given}"
        raise DTypeError(who, rule, fix=f"g.astype({wanted!r})")


# Is the order in which backward computes gradients used?
ranking = False


def rank_gradients() -> None:
    """From now on backward programs assign ranks to their variables: gradients of lower rank are
    computed first."""
    global ranking
    ranking = True


# ---- backward ------------------------------------------------------------------------------------


def backward(
    heads: Any, head_grads: Any = None, retain_graph: bool = False, train_mode: bool = True
) -> None:
    """Computes the gradients of heads with respect to every variable they depend on, into its
    .grad.

    head_grads: gradients of some scalar with respect to the heads (None: ones). Raises MXNetError
        for a head that was
    not recorded. The tape is freed unless retain_graph.
    """
    heads, head_grads = _lists(heads, head_grads)
    tape = TapeGraph([h._tape for h in heads])
    _check_heads(heads)
    order = list(tape.variables)
    found = program_of(
        tape,
        tuple([g is not None for g in head_grads]),
        tuple([request(v) for v in order]),
    )
    if found is None:
        _deliver(order, interpret(heads, head_grads, order, create_graph=False))
    else:
        ins = [source(s, tape, heads, head_grads, order) for s in found.sources]
        targets = [order[i].grad for i in found.written]
        at = location.capture() if found.program.can_fail else -1
        if layers.watched and getattr(found.program, "calls", None):
            name_layers(found.program, tape)
        made = found.program.run(ins, targets, at, tape.scalars)
        for i, parts in found.rows:
            with pause():
                deliver_rows(order[i].grad, parts, made, order[i].req == "add")
        if ranking:
            for i, final in zip(found.written, found.program.finals):
                order[i].rank = final
    for v in order:
        v.fresh = True
    if not retain_graph:
        _free(tape.nodes)


def request(v: Variable) -> str:
    """The gradient request of a variable, for backward programs."""
    sparse = v.grad is not None and v.grad._spec.stype == "row_sparse"
    return ROWS if sparse and v.array.stype == "default" else v.req


def _lists(heads, head_grads):
    if isinstance(heads, NDArray):
        heads = [heads]
        head_grads = (
            None
            if head_grads is None
            else [head_grads]
            if isinstance(head_grads, NDArray)
            else head_grads
        )
    if not isinstance(heads, (list, tuple)) or not heads:
        raise InvalidValue(f"backward: heads must be one or more NDArrays, got {heads!r}")
    heads = list(heads)
    head_grads = [None] * len(heads) if head_grads is None else list(head_grads)
    if len(head_grads) != len(heads):
        raise MXNetError(
            f"backward: needs as many head gradients as heads, got {len(head_grads)} and"
            f" {len(heads)}"
        )
    for i, (h, g) in enumerate(zip(heads, head_grads)):
        check_nd(h, "backward: every head")
        if g is None:
            continue
        check_nd(g, "backward: every head gradient")
        if g._spec is not h._spec:
            if not g._spec.device.same_memory(h._spec.device):
                head_grads[i] = g = g.as_in_context(h._spec.device)
            _check_gradient("backward", "a head gradient", "its head", g, h)
    return heads, head_grads


def _check_heads(heads):
    for h in heads:
        if h._tape is None:
            raise MXNetError(
                "Cannot differentiate node because it is not in a computational graph. You need to"
                " set is_recording to true or use autograd.record() to save computational graphs"
                " for backward\n  fix: compute it inside `with autograd.record():` from arrays with"
                " attach_grad()"
            )


def _free(nodes) -> None:
    for node in nodes:
        node.inputs = node.entries = node.saved = None


def _deliver(order, grads) -> None:
    for v, g in zip(order, grads):
        if v.req == "add":
            if g is not None:
                copy_into(v.grad + g, v.grad)
        else:
            copy_into(g if g is not None else F.zeros_like(v.grad), v.grad)


# ---- gradients one call at a time: for create_graph, and for Python functions --------------------


class _Absent:
    """Placeholder for an array that the gradient does not read: it has only a shape and dtype."""

    __slots__ = ("dtype", "shape")
    absent = True

    def __init__(self, s: Any):
        self.shape, self.dtype = s.shape, s.dtype


def interpret(
    heads: Any, head_grads: Any, wanted: Any, create_graph: bool, since: int = -1
) -> list[NDArray | None]:
    """Gradients by calling operators eagerly; recorded themselves when create_graph.

    wanted: tape entries (None gives None). since: nodes recorded earlier are not visited.
    """
    sums: dict = {}

    def add(entry, g):
        if entry is not None and g is not None:
            before = sums.get(entry)
            sums[entry] = g if before is None else before + g

    keep = {w for w in wanted if w is not None}
    with Scope(create_graph, None):
        for h, g in zip(heads, head_grads):
            add(h._tape, F.ones_like(h.detach()) if g is None else g)
        for node in reversed(reachable([h._tape for h in heads], since)):
            outs = node.plan.out_specs
            keys = [(node, i) for i in range(len(outs))]
            dys = [sums.get(k) if k in keep else sums.pop(k, None) for k in keys]
            if all(d is None for d in dys):
                continue
            op = getattr(node.plan, "op", None)
            if op is None or not op.has(Lowered):
                dys = [
                    F.zeros(s.shape, ctx=s.device, dtype=s.dtype) if d is None else d
                    for d, s in zip(dys, outs)
                ]
            assert node.entries is not None
            grads = _seen_grads if watch.see is not None else _node_grads
            for e, g in zip(node.entries, grads(F, node, dys, create_graph)):
                add(e, g)
    return [None if w is None else sums.get(w) for w in wanted]


def with_entry(array: NDArray, entry: Any) -> NDArray:
    """An array on the same memory with the given tape entry."""
    if array._tape is entry:
        return array
    seen = shadow(array)
    seen._tape = entry
    return seen


def _seen_grads(F, node: TapeNode, dys, create_graph: bool):
    """_node_grads, whose calls are of the node's layer."""
    before = layers.enter(layers.named(getattr(node, "layer", None)))
    watch.gradient_of = node.plan
    try:
        return _node_grads(F, node, dys, create_graph)
    finally:
        watch.gradient_of = None
        layers.enter(before)


def _node_grads(F, node: TapeNode, dys, create_graph: bool):
    plan = node.plan
    if not isinstance(plan, Plan):
        return plan.eager_grads(node, dys, create_graph)
    op, inputs, entries = plan.op, node.inputs, node.entries
    assert inputs is not None and entries is not None
    if op.grad is None:
        return [None] * len(inputs)
    graph_node = plan_node(plan, [variable("x", s.type) for s in plan.in_specs], node.scalars)
    ys: list[NDArray | _Absent] = []
    for i, s in enumerate(plan.out_specs):
        y = (node.saved or {}).get(i)
        if y is None:
            ys.append(_Absent(s))
        else:
            ys.append(with_entry(y, (node, i)))
    xs = [
        _Absent(s) if a is None else with_entry(a, e)
        for a, e, s in zip(inputs, entries, plan.in_specs)
    ]
    device = plan.in_specs[0].device  # the device of constants in a gradient
    training = bool(graph_node.attrs.get("train", state.training))
    with device, Scope(None, training), precision.forced(None):
        return op.differentiate(F, dys, xs, ys, graph_node.attrs)


def grad(
    heads: Any,
    variables: Any,
    head_grads: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    train_mode: bool = True,
) -> list[NDArray]:
    """A list with the gradients of heads with respect to variables, as new arrays; .grad does not
    change.

    create_graph: record the gradient's own computation, so that it can be differentiated again.
    Raises MXNetError for a variable that the heads do not depend on.
    """
    heads, head_grads = _lists(heads, head_grads)
    variables = [variables] if isinstance(variables, NDArray) else list(variables)
    for v in variables:
        check_nd(v, "grad: every variable")
        if v._tape is None:
            raise MXNetError(
                "grad: a variable must have been marked with attach_grad(), or be recorded"
                "\n  fix: x.attach_grad() before autograd.record()"
            )
    _check_heads(heads)
    found = interpret(heads, head_grads, [v._tape for v in variables], create_graph)
    nodes = reachable([h._tape for h in heads])
    full = [g for g in found if g is not None]
    if len(full) < len(found):
        full = _with_zeros(variables, found, nodes, create_graph)
    if create_graph:
        full = [_recorded(g, v) for g, v in zip(full, variables)]
    if not (create_graph if retain_graph is None else retain_graph):
        _free(nodes)
    return full


def _recorded(g: NDArray, variable: NDArray) -> NDArray:
    """A gradient that can be differentiated again: a gradient that does not depend on its variable,
    such as that of x * 2, has gradient 0."""
    if g._tape is not None:
        return g
    with Scope(True, None):
        return F._identity_with_attr_like_rhs(g, variable)


def _with_zeros(variables, found, nodes, create_graph: bool) -> list[NDArray]:
    """The gradients found, with zeros for variables connected to the heads only through operators
    without a gradient. Raises MXNetError for a variable that is not connected."""
    read = {e for node in nodes for e in node.entries}
    full = []
    for v, g in zip(variables, found):
        if g is None and v._tape not in read:
            raise MXNetError(
                "grad: the heads do not depend on one of the variables (shape "
                f"{v.shape})\n  fix: leave it out, or use it inside autograd.record()"
            )
        with Scope(create_graph, None):
            full.append(F.zeros_like(v) if g is None else g)
    return full


def get_symbol(x: NDArray) -> Any:
    """The recorded computation of x as a Symbol. Raises MXNetError when x was not recorded."""
    check_nd(x, "get_symbol: x")
    _check_heads([x])
    return hooks.get("symbol of a tape")(TapeGraph([x._tape]))
