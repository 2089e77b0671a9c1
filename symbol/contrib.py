"""sym.contrib: loops and branches of Symbols, and the operators that MXNet calls contributed.

The body of a loop is called once, on variables. What it computes from them becomes a graph inside
the operator; outside values that it reads become inputs.
"""

from __future__ import annotations

import ast
import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..engine.error import InvalidValue, MXNetError
from ..graph.graph import Node, Value, rewrite, topological, values_of, variable
from ..graph.names import output_name
from ..kernels.namespaces import derive
from ..kernels.record import Operator, Type, lookup
from ..ndarray.branch import Branch
from ..ndarray.control import Part
from ..ndarray.loop import Loop
from ..ndarray.nesting import LoopError, NotNested, flatten, pair, unflatten
from . import attribute
from .compose import sizes_read
from .symbol import Symbol, active, apply, function_of, var

SCOPE = "__subgraph_name__"  # the attribute of nodes created inside a body


# ---- the user's functions ------------------------------------------------------------------------


def foreach(body: Callable[..., Any], data: Any, init_states: Any, name: str = "foreach") -> Any:
    """Calls body(slice of data, states) -> (outputs, new states) for every slice along axis 0.

    data, init_states: a Symbol or nested lists of them. Returns (outputs stacked along axis 0, the
    last states), nested as body nests them. Gradients flow to data, states and everything that
    body reads.
    """
    cls = _class_of(data, init_states)
    values, data_form = _flatten(data, "data")
    states, state_form = _flatten(init_states, "init_states")
    with _Scope(name) as scope:
        slices = [_stand_in(v, sliced=True) for v in values]
        before = [_stand_in(v) for v in states]
        found = body(_regroup(slices, data_form, cls), _regroup(before, state_form, cls))
        outs, after = pair(found, "foreach: body", "outputs, states")
        outs, out_form = _flatten(outs, "an output of body")
        after, after_form = _flatten(after, "a state of body")
        if _unified(after_form) != _unified(state_form):
            raise LoopError("The input and output loop_vars have different format")
        outputs = scope.outputs(outs, after)
    graph, outer = scope.extract(outputs, dict(zip(slices + before, values + states)))
    inputs = _variables(graph)
    in_data = _places(inputs, slices, "the data arrays have to be used in the loop body")
    in_states = _places(inputs, before, "the state arrays have to be used in the loop body")
    rest = [k for k, v in enumerate(inputs) if k not in in_data and k not in in_states]
    result = _made(
        "_foreach",
        [graph],
        [*values, *states, *(outer[inputs[k]] for k in rest)],
        num_outputs=len(outputs),
        num_out_data=len(outs),
        in_state_locs=in_states,
        in_data_locs=in_data,
        remain_locs=rest,
    )
    made, last = result[: len(outs)], result[len(outs) :]
    return _regroup(made, out_form, cls), _regroup(last, after_form, cls)


def while_loop(
    cond: Callable[..., Any],
    func: Callable[..., Any],
    loop_vars: Any,
    max_iterations: int | None = None,
    name: str = "while_loop",
) -> Any:
    """Calls func(*loop_vars) -> (outputs, new loop_vars) while cond(*loop_vars) is true, at most
    max_iterations times.

    Returns (outputs stacked along axis 0, the last loop_vars). Axis 0 always has max_iterations
    rows; those that were not computed are zeros.
    """
    limit = _limit(max_iterations)
    cls = _class_of(loop_vars)
    values, form = _flatten(loop_vars, "loop_vars")
    if not values:
        raise InvalidValue("loop_vars should contain at least one element")

    def arguments(stand_ins):
        grouped = _regroup(stand_ins, form, cls)
        return grouped if isinstance(grouped, list) else [grouped]

    with _Scope(name + "_cond") as test_scope:
        test_vars = [_stand_in(v) for v in values]
        flag = cond(*arguments(test_vars))
        if not isinstance(flag, Symbol) or len(flag._outputs) != 1:
            raise InvalidValue("Return of cond must be a Symbol")
        test_outputs = test_scope.outputs([], flag._outputs)
    with _Scope(name + "_func") as scope:
        before = [_stand_in(v) for v in values]
        outs, after = pair(func(*arguments(before)), "while_loop: func", "outputs, loop_vars")
        outs, out_form = _flatten([] if outs is None else outs, "an output of func")
        after, _ = _flatten([] if after is None else after, "a loop_var of func")
        if len(after) != len(values):
            raise InvalidValue("The number of loop_vars should be consistent during the loop")
        outputs = scope.outputs(outs, after)
    test, test_outer = test_scope.extract(test_outputs, dict(zip(test_vars, values)))
    graph, outer = scope.extract(outputs, dict(zip(before, values)))
    union: dict[Any, Value] = {}
    own = {**{v: i for i, v in enumerate(test_vars)}, **{v: i for i, v in enumerate(before)}}
    test_at = _union(union, _variables(test), test_outer, own)
    body_at = _union(union, _variables(graph), outer, own)
    inputs = _variables(graph)
    var_at = [inputs.index(v) if v in inputs else -1 for v in before]
    if -1 in var_at:
        raise InvalidValue(
            f"The {var_at.index(-1) + 1}-th loop_var doesn't involve into the computation"
        )
    result = _made(
        "_while_loop",
        [test, graph],
        list(union.values()),
        num_outputs=len(outputs),
        num_out_data=len(outs),
        max_iterations=limit,
        cond_input_locs=test_at,
        func_input_locs=body_at,
        func_var_locs=var_at,
    )
    made, last = result[: len(outs)], result[len(outs) :]
    return _regroup(made, out_form, cls), _regroup(last, form, cls)


def cond(
    pred: Any, then_func: Callable[..., Any], else_func: Callable[..., Any], name: str = "cond"
) -> Any:
    """then_func() if pred is true, else else_func(): only one of them is computed when the graph
    runs. Both must give arrays of the same shapes and dtypes."""
    graphs, outers, form, cls = [], [], None, _class_of(pred)
    for what, function in (("pred", lambda: pred), ("then", then_func), ("else", else_func)):
        with _Scope(f"{name}_{what}") as scope:
            found = function()
            outs, form_of = _flatten(found, f"an output of {what}_func")
            cls = cls if cls is not Symbol else _class_of(found)
            outputs = scope.outputs(outs, [])
        if what == "pred" and len(outs) != 1:
            raise InvalidValue("pred should always be a single output")
        form = form_of if what == "then" else form
        graph, outer = scope.extract(outputs, {})
        graphs.append(graph)
        outers.append(outer)
    if len(graphs[1]) != len(graphs[2]):
        raise InvalidValue("Number of outputs differs between then-branch and else-branch")
    union: dict[Any, Value] = {}
    at = [_union(union, _variables(g), outer, {}) for g, outer in zip(graphs, outers)]
    result = _made(
        "_cond",
        graphs,
        list(union.values()),
        num_outputs=len(graphs[1]),
        cond_input_locs=at[0],
        then_input_locs=at[1],
        else_input_locs=at[2],
    )
    return _regroup(result, form, cls)


def isinf(data: Symbol) -> Symbol:
    """1 where an element is infinite, else 0."""
    return data.abs() == math.inf


def isnan(data: Symbol) -> Symbol:
    """1 where an element is not a number, else 0."""
    return data != data


def isfinite(data: Symbol) -> Symbol:
    """1 where an element is a finite number, else 0."""
    return apply(lookup("logical_not"), "logical_not", [isinf(data) + isnan(data)], {})


def rand_zipfian(true_classes: Any, num_sampled: Any, range_max: Any) -> Any:
    """(classes, expected counts of true_classes, expected counts of the classes) of num_sampled
    draws from the log-uniform distribution over [0, range_max): int64, float64, float64."""
    from .random import uniform

    log_range = math.log(range_max + 1)
    rand = uniform(0, log_range, shape=(num_sampled,), dtype="float64")
    classes = (rand.exp() - 1).astype("int64") % range_max

    def expected(of):
        of = of.astype("float64")
        return ((of + 2.0) / (of + 1.0)).log() / log_range * num_sampled

    return classes, expected(true_classes), expected(classes)


# ---- nested lists --------------------------------------------------------------------------------


def _flatten(value, what: str) -> tuple[list[Value], Any]:
    """(values, form) of Symbols in nested lists."""

    def outputs(x, leaves: list):
        if not isinstance(x, Symbol):
            raise NotNested(f"{what} must be (nested) list of Symbol, got {type(x).__name__}")
        leaves += x._outputs
        return len(x._outputs) if len(x._outputs) > 1 else 0

    return flatten(value, (), outputs)


def _unified(form):
    """The form with lists and Symbols of several outputs as one."""
    if isinstance(form, int):
        return 0 if form == 0 else [0] * form
    return [_unified(f) for f in form]


def _class_of(*values: Any) -> type[Symbol]:
    """That of Symbols under NumPy's rules if one of the (nested) values is one."""
    for v in values:
        found = _class_of(*v) if isinstance(v, (list, tuple)) else type(v)
        if found is not Symbol and issubclass(found, Symbol):
            return found
    return Symbol


def _regroup(values: Sequence[Value], form, cls: type[Symbol]):
    return unflatten(form, [cls([v]) for v in values])


def _limit(max_iterations) -> int:
    if max_iterations is None:
        raise InvalidValue("max_iterations should be specified")
    try:
        array = hasattr(max_iterations, "asscalar")
        return int(max_iterations.asscalar() if array else max_iterations)
    except (TypeError, ValueError, MXNetError):
        raise InvalidValue("Cannot convert max_iteration to python int") from None


# ---- bodies --------------------------------------------------------------------------------------


class _Names(threading.local):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()


_names = _Names()


class _Scope:
    """Marks nodes composed inside, to distinguish them from existing ones."""

    def __init__(self, name: str):
        outer = attribute.current().get(None).get(SCOPE, "")
        name = f"{outer}${name}" if outer else name
        _names.counts[name] += 1
        self.name = f"{name}{_names.counts[name] - 1}"
        self._attributes = attribute.AttrScope(**{SCOPE: self.name})

    def __enter__(self):
        self._attributes.__enter__()
        return self

    def __exit__(self, *error):
        self._attributes.__exit__(*error)

    def _inside(self, node: Node) -> bool:
        return (node.extra or {}).get(SCOPE) == self.name

    def outputs(self, outs: Sequence[Value], states: Sequence[Value]) -> list[Value]:
        """The outputs of a body, each of a separate node inside it."""
        nodes = {v.node for v in outs}
        made = []
        for k, v in enumerate([*outs, *states]):
            again = k >= len(outs) and v.node in nodes
            if v.node.op is None or again or not self._inside(v.node):
                v = apply(lookup("_copy"), "identity", [Symbol([v])], {})._outputs[0]
            made.append(v)
        return made

    def extract(self, outputs: Sequence[Value], own: dict[Value, Value]) -> Any:
        """(the graph of the body alone, the value outside for each of its variables). own: the
        body's arguments."""
        outer: dict[Value, Value] = dict(own)
        twins: dict[Value, Value] = {}
        own_nodes = {v.node for v in own}
        start: dict[Node, Sequence[Value]] = {}
        stack, seen = [v.node for v in outputs], set()
        while stack:
            node = stack.pop()
            if node in seen or node in own_nodes:
                continue
            seen.add(node)
            if node.op is not None and self._inside(node):
                stack += [v.node for v in node.inputs]
                continue
            made = []
            for v in values_of(node):
                sizes_read()
                t = v.type if node.is_typed else None
                extra = node.extra if node.op is None and self._inside(node) else None
                twins[v] = variable(output_name(v), t, extra)
                outer[twins[v]] = v
                made.append(twins[v])
            start[node] = made
        return rewrite(outputs, None, start), outer


def _stand_in(v: Value, sliced: bool = False) -> Value:
    """The variable that represents a value, or its slices, in a body."""
    made = var(f"{v.node.name}-{v.index}")._outputs[0]
    if active() is not None and v.node.is_typed:
        sizes_read()
        t = v.type
        made.node.types = (Type(t.shape[1:] if sliced else t.shape, t.dtype),)
    return made


def _variables(graph: Sequence[Value]) -> list[Value]:
    return [Value(n) for n in topological(graph) if n.op is None]


def _places(inputs: list[Value], of: Sequence[Value], text: str) -> list[int]:
    if any(v not in inputs for v in of):
        raise LoopError(text)
    return [inputs.index(v) for v in of]


def _union(union: dict, inputs: Sequence[Value], outer: dict, own: dict) -> list[int]:
    """Adds the values that a graph reads to its operator's inputs; returns the positions of the
    graph's inputs among them. own: index of each loop variable."""
    places = []
    for v in inputs:
        key = own[v] if v in own else outer[v]
        union.setdefault(key, outer[v])
        places.append(list(union).index(key))
    return places


def _made(name: str, graphs: list, inputs: Sequence[Value], **given) -> list[Value]:
    """The outputs of a new node."""
    texts = {k: str(v) for k, v in given.items()}
    texts["num_args"] = str(len(graphs) + len(inputs))
    op = operator_of(name, texts, graphs)
    return apply(op, name, [Symbol([v]) for v in inputs], texts)._outputs


# ---- records -------------------------------------------------------------------------------------


def operator_of(name: str, given: dict[str, str], graphs: Sequence[Sequence[Value]]) -> Operator:
    """The record of one use of _foreach, _while_loop or _cond. given: its attributes as in files;
    graphs: outputs of its subgraphs. Raises MXNetError."""

    def whole(key):
        return int(given[key])

    def places(key):
        return [int(i) for i in ast.literal_eval(given[key])]

    try:
        made: Loop | Branch
        inputs = [_variables(g) for g in graphs]
        shared: dict[str, Any] = {"params": sorted(set(given)), "graphs": list(graphs)}
        if name == "_foreach":
            (graph,) = graphs
            order = [*places("in_data_locs"), *places("in_state_locs"), *places("remain_locs")]
            n_data, n_states = len(places("in_data_locs")), len(places("in_state_locs"))
            if sorted(order) != list(range(len(inputs[0]))):
                raise ValueError("the locations must name every input once")
            at = [order.index(k) for k in range(len(order))]
            states = list(range(n_data, n_data + n_states))
            body = Part(graph, inputs[0], at)
            made = Loop(name, len(order), body, range(n_data), states, **shared)
        elif name == "_while_loop":
            test_graph, graph = graphs
            at = places("func_input_locs")
            states = [at[k] for k in places("func_var_locs")]
            test = Part(test_graph, inputs[0], places("cond_input_locs"))
            body = Part(graph, inputs[1], at)
            n = whole("num_args") - 2
            length = whole("max_iterations")
            made = Loop(name, n, body, (), states, length=length, test=test, **shared)
        else:
            keys = ("cond_input_locs", "then_input_locs", "else_input_locs")
            test, *ways = (Part(g, v, places(k)) for g, v, k in zip(graphs, inputs, keys))
            made = Branch(name, whole("num_args") - 3, test, ways, **shared)
        if made.n_out != whole("num_outputs"):
            raise ValueError(f"num_outputs is not {made.n_out}")
        return made.operator()
    except (KeyError, ValueError, IndexError, SyntaxError, TypeError) as error:
        if isinstance(error, MXNetError):
            raise
        raise MXNetError(
            f"{name}: its attributes do not fit its subgraphs ({type(error).__name__}: {error})"
        ) from error


if TYPE_CHECKING:
    from ._contrib_operators import *
else:
    __getattr__, __dir__ = derive(__name__, function_of, "_contrib_", shown="sym.contrib")
