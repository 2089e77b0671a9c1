"""The class Symbol: one or more outputs of a graph, composed by calling operators; nothing is
computed until it is bound."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..engine import Context, current_context, files, hooks
from ..engine.base import NotImplementedForSymbol
from ..engine.error import InvalidIndex, InvalidType, InvalidValue, MXNetError, OperatorError
from ..engine.error import compose as compose_text
from ..graph.effects import variables_of
from ..graph.graph import Node, Value, caller_line, rewrite, topological
from ..graph.names import output_names
from ..kernels import ops  # noqa: F401  (fills the registry)
from ..kernels.record import REQUIRED, Operator, Type, lookup
from ..kernels.spec import NUMPY_DTYPES, DType
from . import attribute, inference
from .compose import active, compose, renamed, sizes_read, twin
from .indexing import slice_of
from .json import debug_text, from_json, text_attrs, to_json, without_amp_cast


class UntypedError(MXNetError, AttributeError):
    """The shape or dtype of a Symbol was requested but is unknown."""


if TYPE_CHECKING:
    from ._methods import Methods  # a stub: what is added to the class below
    from .executor import Executor
else:
    Methods = object


class Symbol(Methods):
    """Outputs of a graph. Made by `sym.var`, by operators, and by `sym.Group`.

    A Symbol created while a block is traced has a shape and dtype and behaves like an array; others
    do not.
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
                f"{self!r}: a Symbol with {len(self._outputs)} outputs has no single {what}\n "
                " fix: take"
                " one, s[0]"
            )
        value = self._outputs[0]
        if not value.node.is_typed:
            raise UntypedError(
                f"{self!r}: its {what} is not known before it is bound\n  fix: "
                "s.infer_shape(data=...), or hybridize a block, whose Symbols have one"
            )
        return value.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, if known (while tracing). Raises UntypedError."""
        sizes_read()
        return self._type("shape").shape

    @property
    def dtype(self) -> Any:
        """The NumPy type, if known (while tracing). Raises UntypedError."""
        found = NUMPY_DTYPES[self._type("dtype").dtype]
        return found if found.names else found.type

    @property
    def ndim(self) -> int:
        return len(self._type("ndim").shape)

    @property
    def size(self) -> int:
        sizes_read()
        n = 1
        for k in self._type("size").shape:
            n *= k
        return n

    @property
    def _is_array(self) -> bool:
        """Does it represent one array of known shape, in a traced block?"""
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
            return self.__class__([self._outputs[found[0]]])
        if self._is_array:
            return self._part(key)
        if isinstance(key, slice):
            return self.__class__(self._outputs[key])
        if not hasattr(key, "__index__"):
            raise InvalidType(
                f"a Symbol's outputs are indexed by int, str or slice, got {type(key).__name__}"
            )
        if not -len(self._outputs) <= key.__index__() < len(self._outputs):
            raise InvalidIndex(
                f"Index out of range: {self!r} has {len(self._outputs)} outputs, got {key}"
            )
        return self.__class__([self._outputs[key.__index__()]])

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
        """A group of every output in the graph: internals["fc_output"] is the graph up to there."""
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

    def __call__(self, *args: Any, **kwargs: Any) -> Symbol:
        """The graph with variables replaced: net(data=other). A name renames the last node.

        Raises TypeError for a value that is not a Symbol, ValueError for an unknown variable.
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

    def _call_operator(
        self, op: Operator, inputs: Sequence, attrs: dict[str, Any], out=None, ctx=None
    ) -> Symbol:
        """The node of an eager call on Symbols: what nd functions do while a forward is traced.
        See ndarray.invoke.door."""
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

    def infer_shape(self, *args: Any, **kwargs: Any) -> Any:
        """(shapes of arguments, of outputs, of auxiliary states) from some given ones; (None, None,
        None) if a shape stays unknown. 0 is an unknown dimension, under `np_shape` -1. Raises
        OperatorError that names the node, the rule and its inputs.
        """
        sizes_read()
        found, known = inference.shapes(self._outputs, args, kwargs)
        return found if known else (None, None, None)

    def infer_shape_partial(self, *args: Any, **kwargs: Any) -> Any:
        """As infer_shape; unknown shapes are () and unknown dimensions 0, under `np_shape` None and
        -1."""
        sizes_read()
        found, _ = inference.shapes(self._outputs, args, kwargs)
        return tuple([inference.as_shown(s) for s in group] for group in found)

    def infer_type(self, *args: Any, **kwargs: Any) -> Any:
        """(dtypes of arguments, of outputs, of auxiliary states); (None, None, None) if one stays
        unknown."""
        found = self.infer_type_partial(*args, **kwargs)
        return (None, None, None) if any(t is None for group in found for t in group) else found

    def infer_type_partial(self, *args: Any, **kwargs: Any) -> Any:
        """As infer_type; unknown dtypes are None."""
        return inference.dtypes(self._outputs, args, kwargs)

    def _infer_types(self, shapes: dict, dtypes: dict) -> dict[Node, Type | None]:
        """The type of each variable, from shapes and dtypes by name."""
        sizes_read()
        return inference.variable_types(self._outputs, shapes, dtypes)

    # ---- running ---------------------------------------------------------------------------------

    def bind(
        self,
        ctx: Context | None = None,
        args: Any = None,
        args_grad: Any = None,
        grad_req: str | Sequence[str] | dict[str, str] = "write",
        aux_states: Any = None,
        group2ctx: dict[str, Context] | None = None,
        shared_exec: Any = None,
        *,
        recompute: bool | float | None = None,
    ) -> Executor:
        """An Executor on given arrays.

        args: a list in the order of list_arguments, or a dict by name; all are needed.
        args_grad: arrays for gradients, a list or a partial dict.
        grad_req: write, add or null, for all, as a list, or a dict.
        aux_states: like args.
        group2ctx: devices of the groups that mx.AttrScope(ctx_group="name") gave; nodes without a
            group run on ctx. shared_exec: accepted.
        recompute: what backward recomputes instead of storing it: True, False, "mirror" or a
            fraction, see HybridBlock.hybridize.
        Raises ValueError, TypeError, OperatorError.
        """
        from .binding import bind

        return bind(self, ctx, args, args_grad, grad_req, aux_states, group2ctx, recompute)

    def simple_bind(
        self,
        ctx: Context | None = None,
        grad_req: str | Sequence[str] | dict[str, str] = "write",
        type_dict: Any = None,
        stype_dict: Any = None,
        group2ctx: dict[str, Context] | None = None,
        shared_arg_names: Any = None,
        shared_exec: Any = None,
        shared_buffer: Any = None,
        *,
        recompute: bool | float | None = None,
        **kwargs: Any,
    ) -> Executor:
        """An Executor on new arrays of zeros, whose shapes are inferred from the given ones:
        simple_bind(data=(2, 3)).

        type_dict, stype_dict: dtypes and storage types by name. group2ctx: as for bind; arrays are
            created on the device that uses them. shared_exec: an executor whose arrays of equal
            name, shape and dtype are shared. recompute: as for bind. Keywords that name no
            variable have no effect, as in MXNet.
        Raises MXNetError if a shape stays unknown or does not fit.
        """
        from .binding import simple_bind

        known = {*self.list_arguments(), *self.list_auxiliary_states()}
        shapes = {name: shape for name, shape in kwargs.items() if name in known}
        return simple_bind(
            self, ctx, grad_req, type_dict, shapes, group2ctx, shared_exec, stype_dict, recompute
        )

    def eval(self, ctx: Context | None = None, **kwargs: Any) -> Any:
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
        return Symbol(
            inference.gradients(self._outputs, [wrt] if isinstance(wrt, str) else list(wrt))
        )

    # ---- files and text --------------------------------------------------------------------------

    def tojson(self, remove_amp_cast: bool = True) -> str:
        """The graph as MXNet's JSON."""
        return to_json(without_amp_cast(self._outputs) if remove_amp_cast else self._outputs)

    def save(self, fname: str, remove_amp_cast: bool = True) -> None:
        """Writes the JSON atomically; MXNet and plait can load it."""
        files.write(fname, self.tojson(remove_amp_cast).encode())

    def debug_str(self) -> str:
        """The graph as text, one paragraph per node."""
        return debug_text(self._outputs)

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        from .draw import draw  # imports graphviz, needed only for drawing

        return draw(self._outputs, collapse=True)._repr_mimebundle_(include, exclude)

    def __reduce__(self):
        return load_json, (self.tojson(remove_amp_cast=False),)

    # ---- methods with a signature of their own ---------------------------------------------------

    def reshape(self, *shape: Any, **kwargs: Any) -> Symbol:
        """The same elements under another shape; see sym.Reshape for the codes 0, -1, -2, -3,
        -4."""
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        if not shape:
            shape = kwargs.pop("shape")
        return apply(lookup("Reshape"), "reshape", [self], {"shape": shape, **kwargs})

    def astype(self, dtype: DType, copy: bool = True) -> Symbol:
        """Another dtype."""
        return apply(lookup("Cast"), "cast", [self], {"dtype": dtype})

    def split_v2(
        self, indices_or_sections: Any, axis: int = 0, squeeze_axis: bool = False, **kwargs: Any
    ) -> Symbol:
        """Splits along an axis into a number of parts (if not equal, the first are longer by 1), or
        before the given indices."""
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
        """The same outputs under nd's rules."""
        return Symbol(self._outputs)

    def as_np_ndarray(self) -> Symbol:
        """The same outputs under NumPy's rules."""
        return hooks.get("symbols of np")(self._outputs)

    def get_backend_symbol(self, backend: str) -> Symbol:
        """The Symbol itself: it is optimised when it is bound. "MKLDNN_QUANTIZE": layers and what
        follows them as one node each; in a quantized graph, with calibrated ranges in them. Raises
        ValueError for a backend that MXNet on a CPU does not know."""
        if backend not in BACKENDS:
            raise InvalidValue(
                f"backend {backend!r} is unknown\n  fix: one of {', '.join(BACKENDS)}, or none:"
                " graphs are optimised when they are bound"
            )
        if backend == "MKLDNN_QUANTIZE":
            from ..graph.passes.fuse_layers import fold_ranges, fuse_layers  # few programs need it

            return type(self)(fold_ranges(fuse_layers(self._outputs)))
        return self

    def optimize_for(
        self,
        backend: Any,
        args: Any = None,
        aux: Any = None,
        ctx: Context | None = None,
        shape_dict: Any = None,
        type_dict: Any = None,
        stype_dict: Any = None,
        skip_infer: bool = False,
        **kwargs: Any,
    ) -> Symbol:
        """The same as get_backend_symbol; arrays and types of inputs are not needed."""
        return self.get_backend_symbol(backend)


BACKENDS = ("MKLDNN", "MKLDNN_QUANTIZE", "default")  # of MXNet on a CPU


# ---- making nodes --------------------------------------------------------------------------------


def _single(symbol, what: str) -> Value:
    """The only output of a Symbol. Raises TypeError, ValueError."""
    if not isinstance(symbol, Symbol):
        rule = f"Argument {what} must be Symbol instances, but got {type(symbol).__name__}"
        fix = (
            "in a hybridized block make arrays by F.np or F, or keep one as a Constant of the block"
            if hasattr(symbol, "_handle")
            else None
        )
        raise InvalidType(compose_text(rule, fix=fix))
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
    """A Symbol of the visible outputs of a new node, under NumPy's rules if one of its inputs is.
    given: parameters and `__x__` attributes."""
    if op.n_outputs == 0:
        raise OperatorError(
            op.name, "an operator without outputs cannot be a Symbol", fix=f"call nd.{op.name}"
        )
    values: list[Value | None] = []
    for i, s in enumerate(inputs):
        if s.__class__ is Symbol and len(s._outputs) == 1:
            values.append(s._outputs[0])
        else:
            values.append(None if s is None else _input(op, i, s))
    if not op.params and any(s.__class__ is Symbol for s in given.values()):
        wrong = next(k for k, s in given.items() if s.__class__ is Symbol)
        known = ", ".join(op.names_in({}, len(values)))
        raise OperatorError(op.name, f"has no input {wrong!r}, its inputs are {known}")
    node = compose(op, hint, values, given, name, attr)
    n = 1 if op.n_outputs == 1 else node.n_visible
    cls = next((s.__class__ for s in inputs if s.__class__ is not Symbol and s is not None), Symbol)
    return cls([Value(node)] if n == 1 else [Value(node, i) for i in range(n)])


def _input(op: Operator, i: int, given) -> Value:
    """The value of a Symbol as an operator's input i. Raises TypeError, ValueError for invalid
    inputs."""
    names = op.inputs if not op.variadic else ()
    name = names[i] if i < len(names) else f"arg{i}" if op.variadic else f"input {i}"
    try:
        return _single(given, name)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{op.name}: {error}\n  at: {caller_line()}") from None


# ---- files ---------------------------------------------------------------------------------------


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
