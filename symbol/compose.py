"""Composition: creates a node from an operator and the user's inputs and attributes; and the
tracing scope."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ..engine import layers
from ..engine.error import OperatorError
from ..graph.graph import Node, Value, caller_line, origin, rewrite, topological, values_of
from ..graph.inference import Inference, declared, fill_node, infer_node, is_known, source_shape
from ..graph.passes.precision import cast
from ..kernels import ops, precision  # noqa: F401  (ops fills the registry)
from ..kernels.partial import as_zeros, merge_shapes
from ..kernels.record import DTYPES, Operator, Type, dtype_name, lookup
from ..kernels.spec import DType
from ..kernels.traits import PrecisionCast
from . import attribute
from . import name as naming

MULTICAST = lookup("amp_multicast")
# initializers of variables created for missing inputs
# (operator or "" for any, input) -> its attribute __init__
INITIAL = {
    ("", "moving_mean"): '["zero", {}]',
    ("", "moving_var"): '["one", {}]',
    ("", "moving_avg"): '["zero", {}]',
    ("LeakyReLU", "gamma"): '["Constant", {"value": 0.25}]',
    ("UpSampling", "weight"): '["bilinear", {}]',
}


class tracing:
    """Scope in which every composed node is typed at once.

    Variables of known shape are typed when created, others (deferred parameters) at their first
    use; nodes of train-aware operators get the attribute `train`.

    compared: pairs of values of which it was asked whether their shapes differ, and the answer.
    reads_sizes: may the graph depend on the sizes of its inputs in another way?
    """

    _state = threading.local()

    def __init__(self, train: bool = False):
        self.train = bool(train)
        self._outer: list = []
        self.reads_sizes = False
        self.compared: list[tuple[Value, Value, bool]] = []

    def __enter__(self):
        self._outer.append(active())
        tracing._state.scope = self
        return self

    def __exit__(self, *error):
        tracing._state.scope = self._outer.pop()


def active() -> tracing | None:
    """The innermost tracing scope of this thread."""
    return getattr(tracing._state, "scope", None)


def sizes_read() -> None:
    """From here on the graph that is traced may depend on sizes."""
    scope = active()
    if scope is not None:
        scope.reads_sizes = True


def shapes_differ(a: Value, b: Value) -> bool:
    """Do two typed values have different shapes?"""
    differ, scope = a.shape != b.shape, active()
    if scope is not None:
        scope.compared.append((a, b, differ))
    return differ


def new_variable(name: str, extra: dict[str, str] | None) -> Value:
    """A variable; typed if tracing and its attributes give its complete shape."""
    node = Node(None, {}, (), name, None, extra, caller_line())
    if active() is not None:
        shape, dtype = declared(node)
        if is_known(shape):
            node.types = (Type(shape, dtype or "float32"),)
    return Value(node)


def as_text(kind: Any, value: Any, parsed: Any) -> str:
    """A parameter's value as MXNet writes it into JSON."""
    if kind in ("float", "int", "bool"):
        return str(value)
    if isinstance(value, str) or parsed is None:
        return str(value)
    if kind in ("dtype", "dtype?") or isinstance(kind, tuple):
        return str(parsed)
    if kind in ("shape", "shape?", "floats", "floats?"):
        return str(value) if type(value) is int else str(parsed)
    return str(value)


def compose(
    op: Operator,
    hint: str,
    inputs: Sequence[Value | None],
    given: dict[str, Any],
    name: str | None = None,
    attr: dict[str, str] | None = None,
) -> Node:
    """A new node. Missing inputs become variables called <node>_<input>.

    given: parameters, and attributes of the user (`__x__`; any, without parameters). attr: more
        attributes; AttrScope adds its own.
    Raises OperatorError for wrong parameters, too many inputs and, when tracing, types that do not
    fit.
    """
    # gluoncv gives an Initializer as __init__, of which MXNet keeps only the address: nothing
    if attr:
        attr = {k: str(v) for k, v in attr.items() if k != "__init__" or isinstance(v, str)}
    # keywords that are attributes of the user: all, where an operator has no parameters. AttrScope
    # and `attr` come before them, as in MXNet
    user = [
        k
        for k in given
        if k not in op.param_index
        and (not op.params or k in attribute.HIDDEN or attribute.is_user_key(k))
    ]
    if user:
        own = attribute.hide({k: str(given[k]) for k in user})
        given = {k: v for k, v in given.items() if k not in own and k not in user}
    if op.variadic_key:
        given = op.counted(given, len(inputs))
    source = origin(caller_line(3), layers.current())
    try:
        full = op.parse(given)
    except OperatorError as error:
        raise type(error)(error.operator, error.rule, error.fix, source) from None
    scoped = attribute.current().get(attr)
    extra = attribute.hide(scoped) if scoped else {}
    if user:
        extra = own | extra
    for key, i in op.param_index.items() if given else ():
        if key in given:
            extra[key] = as_text(op.params[i].kind, given[key], full[key])
    name = naming.current().get(name, hint)
    names = op.names_in(full, len(inputs))
    if len(inputs) > len(names):
        raise OperatorError(
            op.name, f"takes {len(names)} inputs ({', '.join(names)}), got {len(inputs)}", at=source
        )
    values: list[Value] = []
    for i, v in enumerate([*inputs, *[None] * (len(names) - len(inputs))]):
        if v is None:
            v = new_variable(f"{name}_{names[i]}", variable_attrs(op, extra, names[i]))
            values.append(v)
            continue
        values.append(v)
        if v.node.op is None and (start := start_of(op, names[i])):
            v.node.extra = start | (v.node.extra or {})
    if len(extra) > len(given):  # user attributes: those for inputs were moved there
        for n in names:
            for key in attribute.HIDDEN:
                extra.pop(f"{n}_{key}", None)
    scope = active()
    if scope is not None and op.train_aware:
        full["train"] = scope.train
    node = Node(op, op.shared(full), values, name, None, extra or None, source)
    if precision.used and (policy := precision.active()) is not None:
        node = in_precision(node, policy)
    if scope is not None:
        _type(node)
    return node


def in_precision(node: Node, policy: precision.Policy) -> Node:
    """The node with its inputs cast according to the policy. Inputs of unknown dtype are assumed to
    be float32 parameters."""
    op, attrs = node.op, node.attrs
    assert op is not None
    if op.has(PrecisionCast) or policy.rule(op, attrs) is None:
        return node
    if active() is not None:  # parameters get their types from the operator, not from a cast
        full = [_stand_in(v, policy.target) for v in node.inputs]
        typed = Node(op, attrs, full, node.name, None, node.extra, node.source)
        _type(typed)
        dtypes = [v.type.dtype if v.node.is_typed else "float32" for v in node.inputs]
        wanted = policy.casts(op, attrs, dtypes)
        if wanted is None:
            return node
        values = [v if d is None else _typed_cast(v, d) for v, d in zip(node.inputs, wanted)]
    elif (rule := policy.rule(op, attrs)) == "widest":
        values = multicast(node.inputs)
    else:
        other = "float32" if rule != "float32" else policy.target
        wanted = policy.casts(op, attrs, [other] * len(node.inputs)) or [None] * len(node.inputs)
        values = [v if d is None else _typed_cast(v, d) for v, d in zip(node.inputs, wanted)]
    return Node(op, attrs, values, node.name, None, node.extra, node.source)


def _stand_in(v: Value, target: str) -> Value:
    """A float32 value of the same shape, if v has the target dtype."""
    if not v.node.is_typed or v.type.dtype != target:
        return v
    return Value(Node(None, {}, (), v.node.name, (v.type._replace(dtype="float32"),)))


def _typed_cast(v: Value, dtype: str) -> Value:
    made = cast(v, dtype)
    if active() is not None:
        _type(made.node)
    return made


def multicast(values: Sequence[Value]) -> list[Value]:
    """The values in the widest float dtype among them."""
    n = len(values)
    attrs = MULTICAST.parse({"num_outputs": n})
    name = naming.current().get(None, "amp_multicast")
    return values_of(Node(MULTICAST, attrs, values, name, None, {"num_outputs": str(n)}))


def variable_attrs(op: Operator, extra: dict[str, str], input_name: str) -> dict[str, str]:
    """Attributes of the variable made for a missing input: those of the node, and its
    initializer."""
    attrs = dict(extra)
    for key in attribute.HIDDEN:
        if f"{input_name}_{key}" in extra:
            attrs[f"__{key}__"] = extra[f"{input_name}_{key}"]
    return start_of(op, input_name) | attrs


def start_of(op: Operator, input_name: str) -> dict[str, str]:
    """The initializer attributes of a variable for this input without an initializer of its own."""
    start = INITIAL.get((op.name, input_name)) or INITIAL.get(("", input_name))
    return {"__init__": start} if start else {}


def _type(node: Node) -> None:
    """Sets the output types of a node, and of untyped variables below it. Raises OperatorError.

    Values that depend on a source of partly unknown shape, such as _zeros(shape=(0, 3)), or on a
    variable whose consumer cannot infer its shape, stay untyped until an operator infers them from
        its other inputs, or until the graph is complete: see complete_types.
    """
    if not node.inputs and source_shape(node) is not None:
        return
    if not all([v.node.is_typed for v in node.inputs]):
        ins = [v.type if v.node.is_typed else None for v in node.inputs]
        filled = fill_node(node, ins)
        if any(t is None and not v.node.is_typed for v, t in zip(node.inputs, filled)):
            return
        for v, before, t in zip(node.inputs, ins, filled):
            if before is None and t is not None and not v.node.is_typed:
                _complete(v, t, node)
        if not all([v.node.is_typed for v in node.inputs]):
            return
    node.types = infer_node(node, [v.type for v in node.inputs])


def complete_types(outputs: Sequence[Value], known: dict[Value, Type] | None = None) -> None:
    """Types the remaining untyped values of a traced graph, by inference over the whole graph;
    undetermined values stay untyped. known: types of values. Raises OperatorError."""
    order = topological(outputs)
    if all([n.is_typed for n in order]):
        return
    sizes_read()
    found = Inference(outputs, {}, {}, known=known)
    for node in order:
        if not node.is_typed:
            t = found.type(Value(node))
            if node.op is not None and source_shape(node) is None:
                if all([v.node.is_typed for v in node.inputs]):
                    node.types = infer_node(node, [v.type for v in node.inputs])
            elif t is not None:
                if node.op is not None:
                    node.attrs = dict(node.attrs, shape=t.shape)
                node.types = (t,)


def check_typed(outputs: Sequence[Value]) -> None:
    """Completes the types of a traced graph. Raises OperatorError if a shape stays unknown."""
    complete_types(outputs)
    for node in topological(outputs):
        for v in () if node.is_typed else node.inputs:
            if not v.node.is_typed:
                shape = declared(v.node)[0] if v.node.op is None else source_shape(v.node)
                raise _unknown(v.node, shape, node)


def _unknown(node: Node, shape, user: Node) -> OperatorError:
    assert user.op is not None
    return OperatorError(
        user.op.name,
        f"the shape of {node.name!r} is {as_zeros(shape) or 'unknown'} and cannot be inferred",
        fix="give it a complete shape",
        at=f'{user.source}, node "{user.name}"',
    )


def _complete(v: Value, t: Type, user: Node) -> None:
    """Sets the type inferred by the first user on a variable, a source of partly unknown shape, or
    a value that depends on one."""
    node = v.node
    if node.op is not None and source_shape(node) is None:
        complete_types([v], {v: t})
        return
    if node.op is None:
        shape, dtype = declared(node)
    else:
        shape, dtype = source_shape(node), node.attrs.get("dtype")
    try:
        shape = merge_shapes(shape, tuple(t.shape))
    except ValueError as error:
        assert user.op is not None
        raise OperatorError(
            user.op.name,
            f"{node.name!r} has a shape that contradicts the inferred one: {error}",
            at=f'{user.source}, node "{user.name}"',
        ) from None
    if node.op is not None:
        sizes_read()
        node.attrs = dict(node.attrs, shape=shape)
    node.types = (Type(shape, dtype or t.dtype),)


def dtype_flag(dtype: DType) -> str:
    """MXNet's number of a dtype, as text."""
    if isinstance(dtype, str) and dtype.lstrip("-").isdigit():
        return dtype
    return str(DTYPES.index(dtype_name(dtype)))


# ---- graphs made from graphs ---------------------------------------------------------------------


def twin(node: Node, inputs: Sequence[Value]) -> list[Value]:
    """A copy of a node; variables are copied too, so that their attributes can be set
    separately."""
    made = Node(
        node.op,
        node.attrs,
        inputs,
        node.name,
        node.known_types,
        None if node.extra is None else dict(node.extra),
        node.source,
    )
    return values_of(made)


def renamed(outputs: list[Value], name: str) -> list[Value]:
    """The graph with another name on the node of its first output."""
    last = outputs[0].node
    made = Node(last.op, last.attrs, last.inputs, name, last.known_types, last.extra, last.source)
    return rewrite(outputs, None, {last: values_of(made)})


def named(outputs: list[Value]) -> list[Value]:
    """Converts a typed graph made by passes to a user's graph: every node has a name, and no
    `train`."""
    counter: dict[str, int] = {}

    def replace(node, inputs):
        if node.op is None:
            return [Value(Node(None, {}, (), node.name, None, node.extra))]
        name = node.name
        if not name:
            n = counter.get(node.op.name, 0)
            counter[node.op.name] = n + 1
            name = f"{node.op.name.lower()}_grad{n}"
        made = Node(
            node.op,
            {k: v for k, v in node.attrs.items() if k != "train"},
            inputs,
            name,
            None,
            node.extra,
        )
        return values_of(made)

    return rewrite(outputs, replace)
