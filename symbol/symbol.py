"""Symbol: one or more outputs of a graph, composed by calling operators; nothing is computed until
it is bound."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Iterator, Sequence
from numbers import Number
from typing import TYPE_CHECKING, Any

from ..engine import Context, current_context, files
from ..engine.base import NotImplementedForSymbol
from ..engine.error import InvalidIndex, InvalidType, InvalidValue, MXNetError, OperatorError
from ..graph import operators
from ..graph.effects import variables_of
from ..graph.graph import Node, Value, caller_line, rewrite, topological
from ..graph.inference import DtypeInference, Inference, is_dynamic, typed_graph
from ..graph.names import output_name, output_names
from ..graph.passes.gradient import gradient as gradient_pass
from ..kernels import ops  # noqa: F401  (fills the registry)
from ..kernels.partial import as_zeros, from_zeros
from ..kernels.record import REGISTRY, REQUIRED, Operator, Type, dtype_name, lookup
from ..kernels.signature import dynamic_names, make_function, static_names
from ..kernels.spec import NUMPY_DTYPES
from . import attribute
from .binding import bind, simple_bind
from .compose import (  # noqa: F401  (tracing is offered from here)
    active,
    compose,
    dtype_flag,
    named,
    new_variable,
    renamed,
    tracing,
    twin,
)
from .executor import Executor
from .indexing import slice_of
from .json import from_json, text_attrs, to_json, without_amp_cast


class UntypedError(MXNetError, AttributeError):
    """The shape or dtype of a Symbol that does not know it."""


if TYPE_CHECKING:
    from ._methods import Methods  # a stub: what is added to the class below
else:
    Methods = object


class Symbol(Methods):
    """Outputs of a graph. Made by `sym.var`, by operators, and by `sym.Group`.

    A Symbol made while a block is traced knows its shape and dtype and behaves like an array;
    others do not.
    """

    __slots__ = ("__weakref__", "_outputs")
    __array_priority__ = 1000.0

    def __init__(self, outputs: Sequence[Value]):
        self._outputs = list(outputs)

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The name of its node; None for a group."""
        nodes = {v.node for v in self._outputs}
        return nodes.pop().name if len(nodes) == 1 else None

    def __repr__(self):
        if self.name is None:
            names = dict.fromkeys(v.node.name for v in self._outputs)
            return f"<Symbol group [{', '.join(names)}]>"
        return f"<Symbol {self.name}>"

    def _type(self, what: str) -> Type:
        if len(self._outputs) != 1:
            raise UntypedError(
                f"{self!r}: a Symbol with {len(self._outputs)} outputs has no {what}\n  fix: take"
                " one, s[0]"
            )
        value = self._outputs[0]
        if not value.node.is_typed:
            raise UntypedError(
                f"{self!r}: has no {what}, it is not known before the Symbol is bound\n  fix: "
                "s.infer_shape(data=...), or hybridize a block, whose Symbols know it"
            )
        return value.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, where it is known (tracing). Raises UntypedError."""
        return self._type("shape").shape

    @property
    def dtype(self):
        """The NumPy type, where it is known (tracing). Raises UntypedError."""
        found = NUMPY_DTYPES[self._type("dtype").dtype]
        return found if found.names else found.type

    @property
    def ndim(self) -> int:
        return len(self._type("ndim").shape)

    @property
    def size(self) -> int:
        n = 1
        for k in self._type("size").shape:
            n *= k
        return n

    @property
    def _is_array(self) -> bool:
        """Does it stand for one array of known shape, in a traced block?"""
        return len(self._outputs) == 1 and self._outputs[0].node.is_typed and active() is not None

    def __len__(self):
        if self._is_array:
            if not self.shape:
                raise InvalidType("len() of a 0-d array")
            return self.shape[0]
        return len(self._outputs)

    def __iter__(self) -> Iterator[Symbol]:
        return (self[i] for i in range(len(self)))

    def __bool__(self):
        raise NotImplementedForSymbol("__bool__", "bool")

    __hash__ = object.__hash__

    def __getitem__(self, key):
        """An output by index or name, or a group by slice; in a traced block, the part of an
        array."""
        if isinstance(key, str):
            names = output_names(self._outputs)
            found = [i for i, n in enumerate(names) if n == key] or [
                i for i, v in enumerate(self._outputs) if v.node.name == key
            ]
            if not found:
                raise InvalidValue(
                    f'Cannot find output that matches name "{key}", there are {", ".join(names)}'
                )
            if len(found) > 1 and names.count(key) != 1:
                raise InvalidValue(f'There are multiple outputs with name "{key}"')
            return Symbol([self._outputs[found[0]]])
        if self._is_array:
            return self._part(key)
        if isinstance(key, slice):
            return Symbol(self._outputs[key])
        if not hasattr(key, "__index__"):
            raise InvalidType(
                f"a Symbol's outputs are indexed by int, str or slice, got {type(key).__name__}"
            )
        if not -len(self._outputs) <= key.__index__() < len(self._outputs):
            raise InvalidIndex(
                f"Index out of range: {self!r} has {len(self._outputs)} outputs, got {key}"
            )
        return Symbol([self._outputs[key.__index__()]])

    def _part(self, key) -> Symbol:
        """x[key] of an array of known shape; a Symbol as key takes along the first axis."""
        if isinstance(key, Symbol):
            return apply(lookup("take"), "take", [self, key], {"axis": 0})
        attrs, shape = slice_of(self.shape, key)
        x = self if attrs is None else apply(lookup("slice"), "slice", [self], attrs)
        return x if x.shape == shape else x.reshape(shape)

    def list_arguments(self) -> list[str]:
        """Names of the variables that are inputs, in the graph's order."""
        return [n.name for n in variables_of(self._outputs)[0]]

    def list_auxiliary_states(self) -> list[str]:
        """Names of the variables that operators write (moving statistics)."""
        return [n.name for n in variables_of(self._outputs)[1]]

    def list_inputs(self) -> list[str]:
        """Names of all variables, in the graph's order."""
        return [n.name for n in topological(self._outputs) if n.op is None]

    def list_outputs(self) -> list[str]:
        return output_names(self._outputs)

    def get_internals(self) -> Symbol:
        """A group of every output in the graph: internals["fc_output"] cuts the graph there."""
        return Symbol([Value(n, i) for n in topological(self._outputs) for i in range(n.n_visible)])

    def get_children(self) -> Symbol | None:
        """A group of the inputs of its nodes, or None."""
        values = [v for n in dict.fromkeys(v.node for v in self._outputs) for v in n.inputs]
        return Symbol(values) if values else None

    # ---- attributes ------------------------------------------------------------------------------

    def attr(self, key: str) -> str | None:
        """One attribute or parameter of its node, as text; `name` is the node's name."""
        return self.name if key == "name" else self.list_attr().get(key)

    def list_attr(self, recursive: bool = False) -> dict[str, str]:
        """Attributes and parameters of its node, as text."""
        if recursive:
            return {
                f"{n}${k}": v for n, attrs in self.attr_dict().items() for k, v in attrs.items()
            }
        return (
            attribute.show(dict(text_attrs(self._outputs[0].node))) if self.name is not None else {}
        )

    def attr_dict(self) -> dict[str, dict[str, str]]:
        """Attributes and parameters of every node below, by name."""
        return {
            n.name: attribute.show(dict(a))
            for n in topological(self._outputs)
            if (a := text_attrs(n))
        }

    def _set_attr(self, **kwargs: str) -> None:
        """Sets attributes of its node. Raises ValueError for values that are not strings."""
        attribute.check_text(kwargs, "Set Attr")
        for node in {v.node for v in self._outputs}:
            extra = dict(text_attrs(node), **attribute.hide(kwargs))
            op = node.op
            if op is not None and (given := {k: extra[k] for k in kwargs if k in op.param_index}):
                parsed = op.parse({**node.attrs, **given})
                node.attrs = {**node.attrs, **{k: v for k, v in parsed.items() if k in given}}
            node.extra = extra

    # ---- composition -----------------------------------------------------------------------------

    def __call__(self, *args, **kwargs) -> Symbol:
        """The graph with variables replaced: net(data=other). A name renames the last node.

        Raises TypeError for something that is no Symbol, ValueError for an unknown variable.
        """
        name = kwargs.pop("name", None)
        if args and kwargs:
            raise InvalidType(
                "compose only accept input Symbols either as positional or keyword arguments, not"
                " both"
            )
        variables = [n for n in topological(self._outputs) if n.op is None]
        if len(args) > len(variables):
            raise InvalidValue(
                f"compose: {self!r} has {len(variables)} variables, got {len(args)} Symbols"
            )
        start: dict[Node, Sequence[Value]] = {}
        start.update({n: [_single(a, n.name)] for n, a in zip(variables, args)})
        for key, other in kwargs.items():
            found = [n for n in variables if n.name == key]
            if not found:
                raise InvalidValue(
                    f"compose: keyword argument name {key} not found, the variables are "
                    f"{', '.join(n.name for n in variables)}"
                )
            start.update({n: [_single(other, key)] for n in found})
        outputs = rewrite(self._outputs, None, start)
        if name:
            outputs = renamed(outputs, name)
        return Symbol(outputs)

    def _compose_operator(self, op: Operator, inputs: Sequence, attrs: dict[str, Any]) -> Symbol:
        """The node of an eager call on Symbols: what nd functions do while a forward is traced."""
        defaults = {p.name: p.default for p in op.params}
        given = {
            k: v
            for k, v in attrs.items()
            if v != defaults.get(k, REQUIRED) and k != op.variadic_key
        }
        return apply(op, op.name.lower(), inputs, given)

    def __copy__(self) -> Symbol:
        return Symbol(rewrite(self._outputs, twin))

    def __deepcopy__(self, memo=None) -> Symbol:
        return self.__copy__()

    # ---- shapes and dtypes -----------------------------------------------------------------------

    def _given(self, args, kwargs, what: str) -> dict[Node, Any]:
        """Positional values (by argument) or keywords (by variable) as {node: value}."""
        if args and kwargs:
            raise InvalidValue(
                f"Can only specify known argument {what}s either by positional or kwargs way."
            )
        arguments, auxiliary = variables_of(self._outputs)
        if len(args) > len(arguments):
            raise MXNetError(f"infer_{what}: there are {len(arguments)} arguments, got {len(args)}")
        pairs = [(n, v) for n, v in zip(arguments, args) if v is not None]
        for key, value in kwargs.items():
            found = [n for n in arguments + auxiliary if n.name == key]
            if not found:
                raise MXNetError(
                    f"infer_{what}: keyword argument name {key} not found, the variables are "
                    f"{', '.join(n.name for n in arguments + auxiliary)}"
                )
            if value is not None:
                pairs += [(n, value) for n in found]
        return dict(pairs)

    def _shapes(self, args, kwargs) -> dict[Node, tuple[int, ...]]:
        found = {}
        for node, shape in self._given(args, kwargs, "shape").items():
            shape = (shape,) if hasattr(shape, "__index__") else shape
            if not isinstance(shape, (tuple, list)) or not all(
                hasattr(n, "__index__") for n in shape
            ):
                raise InvalidType(
                    f"infer_shape: the shape of {node.name} must be a tuple of ints, got {shape!r}"
                )
            if len(shape):
                found[node] = from_zeros(tuple(max(n.__index__(), 0) for n in shape))
        return found

    def infer_shape(self, *args, **kwargs):
        """(shapes of arguments, of outputs, of auxiliary states) from some given ones; (None, None,
        None) if a shape stays unknown. 0 is an unknown dimension. Raises OperatorError that names
        the node, the rule and its inputs.
        """
        found, known = self._infer_shapes(args, kwargs)
        return found if known else (None, None, None)

    def infer_shape_partial(self, *args, **kwargs):
        """As infer_shape; unknown shapes are () and unknown dimensions 0."""
        found, _ = self._infer_shapes(args, kwargs)
        return tuple([as_zeros(s) or () for s in group] for group in found)

    def _infer_shapes(self, args, kwargs) -> tuple[tuple[list, list, list], bool]:
        """Shapes of arguments, outputs and auxiliary states, None for an unknown one; are all
        known?"""
        found = Inference(self._outputs, self._shapes(args, kwargs), {}, only_shapes=True)
        arguments, auxiliary = variables_of(self._outputs)
        groups = [*map(Value, arguments)], self._outputs, [*map(Value, auxiliary)]
        known = all(found.knows_shape(v) for group in groups for v in group)
        args_found, outputs, aux = ([found.shape[v] for v in group] for group in groups)
        return (args_found, outputs, aux), known

    def infer_type(self, *args, **kwargs):
        """(dtypes of arguments, of outputs, of auxiliary states); (None, None, None) if one stays
        unknown."""
        found = self.infer_type_partial(*args, **kwargs)
        return (None, None, None) if any(t is None for group in found for t in group) else found

    def infer_type_partial(self, *args, **kwargs):
        """As infer_type; unknown dtypes are None."""
        given = {n: dtype_name(t) for n, t in self._given(args, kwargs, "type").items()}
        found = DtypeInference(self._outputs, given)
        arguments, auxiliary = variables_of(self._outputs)

        def dtypes(values):
            names = [found.dtype[v] for v in values]
            return [
                (
                    None
                    if d is None
                    else NUMPY_DTYPES[d].type
                    if not NUMPY_DTYPES[d].names
                    else NUMPY_DTYPES[d]
                )
                for d in names
            ]

        return dtypes(map(Value, arguments)), dtypes(self._outputs), dtypes(map(Value, auxiliary))

    def _infer_types(self, shapes: dict, dtypes: dict) -> dict[Node, Type | None]:
        """The type of each variable, from shapes and dtypes by name."""
        found = Inference(
            self._outputs,
            self._shapes((), shapes),
            {n: dtype_name(t) for n, t in self._given((), dtypes, "type").items()},
        )
        for v in self._outputs:
            if found.type(v) is None and v.node.op is not None:
                unknown = [
                    n.name for n in found.order if n.op is None and found.type(Value(n)) is None
                ]
                if not unknown and not is_dynamic(self._outputs):
                    raise MXNetError(f"the shape of output {output_name(v)} cannot be inferred")
        return {n: found.type(Value(n)) for n in found.order if n.op is None}

    # ---- running ---------------------------------------------------------------------------------

    def bind(
        self,
        ctx=None,
        args=None,
        args_grad=None,
        grad_req="write",
        aux_states=None,
        group2ctx=None,
        shared_exec=None,
        *,
        recompute=None,
    ) -> Executor:
        """An Executor on given arrays.

        args: a list in the order of list_arguments, or a dict by name; all are needed. args_grad:
            arrays for gradients,
        a list or a partial dict. grad_req: write, add or null, for all, as a list, or a dict.
        aux_states: like args.
        group2ctx: devices of the groups that mx.AttrScope(ctx_group="name") gave; what has no group
            runs on ctx. shared_exec: accepted. recompute: what backward computes again instead of
            keeping it, True, False, "mirror" or a fraction: see HybridBlock.hybridize.
        Raises ValueError, TypeError, OperatorError.
        """
        return bind(self, ctx, args, args_grad, grad_req, aux_states, group2ctx, recompute)

    def simple_bind(
        self,
        ctx=None,
        grad_req="write",
        type_dict=None,
        stype_dict=None,
        group2ctx=None,
        shared_arg_names=None,
        shared_exec=None,
        shared_buffer=None,
        *,
        recompute=None,
        **kwargs,
    ) -> Executor:
        """An Executor on new arrays of zeros, whose shapes are inferred from the given ones:
        simple_bind(data=(2, 3)).

        type_dict, stype_dict: dtypes and storage types by name. group2ctx: as for bind; arrays are
            made where they are used. shared_exec: arrays of equal name, shape and dtype are taken
            from it. recompute: as for bind. Keywords that name no variable have no effect, as in
            MXNet.
        Raises MXNetError where a shape stays unknown or does not fit.
        """
        known = {*self.list_arguments(), *self.list_auxiliary_states()}
        shapes = {name: shape for name, shape in kwargs.items() if name in known}
        return simple_bind(
            self, ctx, grad_req, type_dict, shapes, group2ctx, shared_exec, stype_dict, recompute
        )

    def eval(self, ctx=None, **kwargs):
        """The outputs for given arrays, by variable name: c.eval(a=nd.ones(2), b=nd.ones(2)). A
        list of NDArray."""
        aux = set(self.list_auxiliary_states())
        return self.bind(
            ctx or current_context(),
            {k: v for k, v in kwargs.items() if k not in aux},
            None,
            "null",
            {k: v for k, v in kwargs.items() if k in aux},
        ).forward()

    def gradient(self, wrt: Sequence[str]) -> Symbol:
        """Symbols of the gradients of the sum of the outputs with respect to variables; shapes must
        be declared."""
        wrt = [wrt] if isinstance(wrt, str) else list(wrt)
        inferred = self._infer_types({}, {})
        types = {n: t for n, t in inferred.items() if t is not None}
        if unknown := [n.name for n in inferred if n not in types]:
            raise MXNetError(
                f"gradient: every variable must have a shape, {', '.join(unknown)} has none\n"
                "  fix: sym.var(name, shape=...)"
            )
        values = typed_graph(self._outputs, types, True)
        by_name = {n.name: Value(n) for n in topological(values) if n.op is None}
        if missing := [n for n in wrt if n not in by_name]:
            raise InvalidValue(
                f"gradient: {missing[0]!r} is no variable, the variables are {', '.join(by_name)}"
            )
        grads = gradient_pass(values, [None] * len(values), [by_name[n] for n in wrt])
        zero = lookup("_zeros")

        def zeros_of(name: str) -> Value:
            attrs = zero.parse({"shape": by_name[name].shape})
            return Value(Node(zero, attrs, (), f"{name}_zero"))

        return Symbol(named([zeros_of(n) if g is None else g for n, g in zip(wrt, grads)]))

    # ---- files and text --------------------------------------------------------------------------

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The graph as MXNet's JSON."""
        return to_json(without_amp_cast(self._outputs) if remove_amp_cast else self._outputs)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Writes the JSON, which MXNet and plait load; whole or not at all."""
        files.write(fname, self.tojson(remove_amp_cast).encode())

    def debug_str(self) -> str:
        """The graph as text, a node a paragraph."""
        lines = ["Symbol Outputs:"] + [
            f"\toutput[{i}]={v.node.name}({v.index})" for i, v in enumerate(self._outputs)
        ]
        for node in topological(self._outputs):
            if node.op is None:
                lines.append(f"Variable:{node.name}")
                continue
            lines += ["--------------------", f"Op:{node.op.name}, Name={node.name}"]
            if node.inputs:
                lines += ["Inputs:"] + [
                    f"\targ[{i}]={v.node.name}({v.index})" for i, v in enumerate(node.inputs)
                ]
            if attrs := text_attrs(node):
                lines += ["Attrs:"] + [f"\t{k}={v}" for k, v in sorted(attrs.items())]
        return "\n".join(lines) + "\n"

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        from .draw import draw  # imports graphviz, which only drawings need

        return draw(self._outputs, collapse=True)._repr_mimebundle_(include, exclude)

    def __reduce__(self):
        return load_json, (self.tojson(remove_amp_cast=False),)

    # ---- methods with a signature of their own ---------------------------------------------------

    def reshape(self, *shape, **kwargs) -> Symbol:
        """The same elements under another shape; see sym.Reshape for the codes 0, -1, -2, -3,
        -4."""
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        if not shape:
            shape = kwargs.pop("shape")
        return apply(lookup("Reshape"), "reshape", [self], {"shape": shape, **kwargs})

    def astype(self, dtype, copy: bool = True) -> Symbol:
        """Another dtype."""
        return apply(lookup("Cast"), "cast", [self], {"dtype": dtype})

    def split_v2(
        self, indices_or_sections, axis: int = 0, squeeze_axis: bool = False, **kwargs
    ) -> Symbol:
        """Parts along an axis: a number of them, the first longer by 1 where they cannot be
        equal; or cut before the given indices."""
        if isinstance(indices_or_sections, int):
            given = {"indices": (), "sections": indices_or_sections}
        else:
            given = {"indices": (0, *indices_or_sections)}
        return apply(
            lookup("_split_v2"),
            "_split_v2",
            [self],
            {**given, "axis": axis, "squeeze_axis": squeeze_axis},
            **kwargs,
        )

    @property
    def T(self) -> Symbol:
        return apply(lookup("transpose"), "transpose", [self], {})

    def __abs__(self) -> Symbol:
        return apply(lookup("abs"), "abs", [self], {})

    def __neg__(self) -> Symbol:
        return apply(lookup("_mul_scalar"), "_mulscalar", [self], {"scalar": -1.0})

    # ---- what MXNet has for its own sake ---------------------------------------------------------

    @property
    def handle(self) -> list[Value]:
        return self._outputs

    def as_nd_ndarray(self) -> Symbol:
        """The Symbol itself."""
        return self

    def as_np_ndarray(self):
        """Raises MXNetError: mx.np is not part of this version."""
        raise NotImplementedForSymbol("as_np_ndarray (mx.np)")

    def get_backend_symbol(self, backend: str) -> Symbol:
        """The Symbol itself: it is optimised when it is bound. Raises ValueError for a backend that
        MXNet on a CPU does not know."""
        if backend not in BACKENDS:
            raise InvalidValue(
                f"backend {backend!r} is unknown\n  fix: one of {', '.join(BACKENDS)}, or none:"
                " graphs are optimised when they are bound"
            )
        return self

    def optimize_for(
        self,
        backend,
        args=None,
        aux=None,
        ctx=None,
        shape_dict=None,
        type_dict=None,
        stype_dict=None,
        skip_infer=False,
        **kwargs,
    ) -> Symbol:
        """The same as get_backend_symbol; arrays and types of inputs are not needed."""
        return self.get_backend_symbol(backend)


BACKENDS = ("MKLDNN", "MKLDNN_QUANTIZE", "default")  # of MXNet on a CPU

# what stands for them in a traced block
TRACED = {"copy": "_copy", "detach": "BlockGrad"}


def _only_arrays(name: str):
    def method(self, *args, **kwargs):
        if self._is_array and name in TRACED:
            return apply(lookup(TRACED[name]), name, [self], {})
        if self._is_array and name in ("as_in_context", "copyto") and isinstance(args[0], Context):
            return apply(lookup("_to_device"), name, [self], {"ctx": str(args[0])})
        raise NotImplementedForSymbol(name)

    method.__name__, method.__doc__ = (
        name,
        "Only arrays have values: bind or eval the Symbol first.",
    )
    return method


for _name in (
    "wait_to_read",
    "wait_to_write",
    "asnumpy",
    "asscalar",
    "copy",
    "copyto",
    "as_in_context",
    "detach",
    "backward",
    "attach_grad",
):
    setattr(Symbol, _name, _only_arrays(_name))


# ---- making nodes --------------------------------------------------------------------------------


def _single(symbol, what: str) -> Value:
    """The only output of a Symbol. Raises TypeError, ValueError."""
    if not isinstance(symbol, Symbol):
        raise InvalidType(
            f"Argument {what} must be Symbol instances, but got {type(symbol).__name__}"
        )
    if len(symbol._outputs) != 1:
        raise InvalidValue(
            f"Argument {what}: a single output is needed, got {symbol!r} with"
            f" {len(symbol._outputs)}\n  fix: take one, s[0]"
        )
    return symbol._outputs[0]


def apply(
    op: Operator,
    hint: str,
    inputs: Sequence[Symbol | None],
    given: dict[str, Any],
    name: str | None = None,
    attr: dict[str, str] | None = None,
) -> Symbol:
    """A Symbol of the visible outputs of a new node. given: parameters and `__x__` attributes."""
    if op.n_outputs == 0:
        raise OperatorError(
            op.name, "it has no outputs, of which symbols consist", fix=f"call nd.{op.name}"
        )
    values: list[Value | None] = []
    for i, s in enumerate(inputs):
        if s.__class__ is Symbol and len(s._outputs) == 1:
            values.append(s._outputs[0])
        else:
            values.append(None if s is None else _input(op, i, s))
    node = compose(op, hint, values, given, name, attr)
    n = 1 if op.n_outputs == 1 else node.n_visible
    return Symbol([Value(node)] if n == 1 else [Value(node, i) for i in range(n)])


def _input(op: Operator, i: int, given) -> Value:
    """The value of a Symbol as an operator's input i. Raises TypeError, ValueError for what is
    none."""
    names = op.inputs if not op.variadic else ()
    name = names[i] if i < len(names) else f"arg{i}" if op.variadic else f"input {i}"
    try:
        return _single(given, name)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{op.name}: {error}\n  at: {caller_line()}") from None


@functools.cache
def symbol_function(op: Operator, name: str):
    """The symbolic function of an operator, with its record's signature; knows which parameters
    were given."""
    static_keys, dynamic_keys = static_names(op), dynamic_names(op)

    def collect(inputs, static, dynamic, out, node_name, kwargs):
        if out is not None:
            raise InvalidType(
                f"{name}: takes {len(op.inputs)} Symbols ({', '.join(op.inputs)}) and has no"
                f" `out`\n  at: {caller_line()}"
            )
        return (
            list(inputs),
            {**dict(zip(static_keys, static)), **dict(zip(dynamic_keys, dynamic))},
            node_name,
            kwargs,
        )

    prototype = make_function(op, name, collect, __name__)
    order = list(inspect.signature(prototype).parameters)
    n_inputs = 0 if op.variadic else len(op.inputs)
    hint = name.lower()
    # keywords that are parameters as they stand: such a call needs no look at the signature
    plain = {p.name for p in op.params if p.name in order} - set(op.inputs)

    @functools.wraps(prototype)
    def function(*args, **kwargs):
        if 0 < len(args) <= n_inputs and args[-1] is not None and plain.issuperset(kwargs):
            given = {k: v for k, v in kwargs.items() if v is not REQUIRED} if kwargs else {}
            return apply(op, hint, args, given)
        inputs, params, node_name, rest = prototype(*args, **kwargs)
        positional = (
            set()
            if op.variadic
            else {p.rstrip("_") for p in order[n_inputs : len(args)]}
            | set(order[n_inputs : len(args)])
        )
        attr = rest.pop("attr", None)
        asked = positional | set(kwargs) | {k.rstrip("_") for k in kwargs}
        given = {k: v for k, v in params.items() if k in asked and v is not REQUIRED} | rest
        if op.variadic:
            inputs = _flat(inputs)
        for i, n in enumerate(op.inputs):
            if n in given and isinstance(given[n], Symbol):
                inputs[i : i + 1] = [given.pop(n)]
        while inputs and inputs[-1] is None:
            inputs.pop()
        return apply(op, hint, inputs, given, node_name, attr)

    return function


def _flat(inputs) -> list:
    """Lists among variadic inputs are taken apart."""
    flat: list = []
    for i in inputs:
        flat.extend(i) if isinstance(i, (list, tuple)) else flat.append(i)
    return flat


def _method(name: str):
    def call(self, *args, **kwargs):
        if name in ("expand_dims", "flatten", "squeeze"):
            kwargs.pop("inplace", None)  # of arrays; a Symbol has no memory
        return symbol_function(REGISTRY[name], name)(self, *args, **kwargs)

    call.__name__ = name
    call.__doc__ = f"See sym.{name}."
    return call


for _name, _op in REGISTRY.items():  # every public operator of a first array is a method
    if _name[0].islower() and _op.inputs and not _op.variadic and not hasattr(Symbol, _name):
        setattr(Symbol, _name, _method(_name))


# ---- Python's operators --------------------------------------------------------------------------

# method: (operator of two Symbols, of two whose known shapes differ, with a number on the right, on
# the left)
OPERATORS = {
    "add": ("_plus", "broadcast_add", "_PlusScalar", "_PlusScalar"),
    "sub": ("_minus", "broadcast_sub", "_MinusScalar", "_RMinusScalar"),
    "mul": ("_mul", "broadcast_mul", "_MulScalar", "_MulScalar"),
    "truediv": ("_div", "broadcast_div", "_DivScalar", "_RDivScalar"),
    "mod": ("_mod", "broadcast_mod", "_ModScalar", "_RModScalar"),
    "pow": ("_power", "broadcast_power", "_PowerScalar", "_rpower_scalar"),
    "eq": ("_equal", "broadcast_equal", "_equal_scalar", None),
    "ne": ("_not_equal", "broadcast_not_equal", "_not_equal_scalar", None),
    "gt": ("_greater", "broadcast_greater", "_greater_scalar", None),
    "ge": ("_greater_equal", "broadcast_greater_equal", "_greater_equal_scalar", None),
    "lt": ("_lesser", "broadcast_lesser", "_lesser_scalar", None),
    "le": ("_lesser_equal", "broadcast_lesser_equal", "_lesser_equal_scalar", None),
}


def binary(both: str, broadcast: str | None, right: str, left: str | None, a, b) -> Symbol:
    """a <op> b of Symbols and numbers; the arguments are as in OPERATORS. Raises TypeError."""
    if isinstance(a, Symbol) and isinstance(b, Symbol):
        typed = [s._outputs[0].node.is_typed for s in (a, b) if len(s._outputs) == 1]
        differ = typed == [True, True] and a.shape != b.shape
        name = broadcast if differ and broadcast else both
        return apply(lookup(name), name.lower(), (a, b), {})
    array, number, with_number = (a, b, right) if isinstance(a, Symbol) else (b, a, left)
    if type(number) is not float and not isinstance(number, Number):
        raise InvalidType(
            f"{both}: type {type(number)} not supported, operands must be Symbols or numbers\n "
            f" at: {caller_line()}\n  fix: an array that a block needs is a Parameter or Constant"
            " of it"
        )
    assert with_number is not None  # comparisons are mirrored by Python
    return apply(lookup(with_number), with_number.lower(), (array,), {"scalar": number})


def _add_operators():
    def methods(both, broadcast, right, left):
        return (
            lambda self, other: binary(both, broadcast, right, left, self, other),
            lambda self, other: binary(both, broadcast, right, left, other, self),
        )

    for name, row in OPERATORS.items():
        plain, reflected = methods(*row)
        setattr(Symbol, f"__{name}__", plain)
        if row[3] is not None:
            setattr(Symbol, f"__r{name}__", reflected)
    Symbol.__div__, Symbol.__rdiv__ = Symbol.__truediv__, Symbol.__rtruediv__
    Symbol.__hash__ = object.__hash__
    operators.add_composites(Symbol, lambda: sys.modules[__package__], lambda a, b: NotImplemented)


_add_operators()


# ---- variables, groups, files --------------------------------------------------------------------


def var(
    name: str,
    attr: dict[str, str] | None = None,
    shape=None,
    lr_mult=None,
    wd_mult=None,
    dtype=None,
    init=None,
    stype=None,
    profiler_scope=None,
    **kwargs,
) -> Symbol:
    """A variable: an input of the graph.

    shape: 0 is an unknown dimension. init: an Initializer or its name. kwargs: attributes `__x__`.
    Raises TypeError, ValueError for other names and for values that are not strings.
    """
    if not isinstance(name, str):
        raise InvalidType("Expect a string for variable `name`")
    attr = dict(attribute.current().get(attr))
    attribute.check_text(attr, "var")
    attr = attribute.hide(attr)
    if shape is not None:
        try:
            shape = (
                (shape.__index__(),)
                if hasattr(shape, "__index__")
                else tuple(n.__index__() for n in shape)
            )
        except (AttributeError, TypeError):
            raise InvalidType(f"var: shape must be a tuple of ints, got {shape!r}") from None
        attr["__shape__"] = str(shape)
    if lr_mult is not None:
        attr["__lr_mult__"] = str(lr_mult)
    if wd_mult is not None:
        attr["__wd_mult__"] = str(wd_mult)
    if dtype is not None:
        attr["__dtype__"] = dtype_flag(dtype)
    if init is not None:
        attr["__init__"] = init if isinstance(init, str) else init.dumps()
    if stype is not None:
        attr["__storage_type__"] = str({"default": 0, "row_sparse": 1, "csr": 2}.get(stype, stype))
    for key, value in kwargs.items():
        if not attribute.is_user_key(key):
            raise InvalidValue(
                f"Attribute name={key} is not supported. Additional attributes must start and end"
                " with double underscores, e.g, __yourattr__"
            )
        attr[key] = str(value)
    return Symbol([new_variable(name, attr or None)])


Variable = var


def Group(symbols: Sequence[Symbol], create_fn=None) -> Symbol:
    """One Symbol with the outputs of several. Raises TypeError."""
    symbols = list(symbols) if not isinstance(symbols, Symbol) else [symbols]
    if not symbols or any(not isinstance(s, Symbol) for s in symbols):
        raise InvalidType("Expected a list of symbols as input")
    return Symbol([v for s in symbols for v in s._outputs])


def load(fname: str) -> Symbol:
    """The Symbol of a -symbol.json file of any MXNet since 0.8. Raises MXNetError."""
    if not isinstance(fname, (str, os.PathLike)):
        raise InvalidType("fname need to be string")
    with files.reading(fname, "symbol file"), open(fname, encoding="utf-8") as file:
        text = file.read()
    return Symbol(from_json(text, os.fspath(fname)))


def load_json(json_str: str) -> Symbol:
    """The Symbol of a JSON text. Raises MXNetError."""
    if not isinstance(json_str, str):
        raise InvalidType("json_str required to be string")
    return Symbol(from_json(json_str))
