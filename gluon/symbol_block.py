"""SymbolBlock: a Symbol as a block, and networks read from `-symbol.json` and `.params` files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from types import ModuleType
from typing import Any

from ..engine import Context, cpu
from ..engine.error import MXNetError, parse_json
from ..graph.inference import typed_graph
from ..kernels.record import dtype_name
from ..kernels.spec import DType
from ..ndarray import serialization
from ..ndarray.cached import CachedGraph
from ..ndarray.ndarray import NDArray, state
from ..ndarray.nesting import unflatten
from . import shard
from .hybrid import HybridBlock
from .parameter import Parameter, shape_is_known
from .parameter_dict import ParameterDict
from .trace import StructureError, flatten_call, monitored


class SymbolBlock(HybridBlock):
    """A block that computes a Symbol (or list of them) from its input variables; all other
    variables are parameters.

    Args:
        outputs: Symbol or list. inputs: Symbol or (nested) list of variables.
        params: ParameterDict or dict of Parameters to take instead of new ones.
    Raises: ValueError for an input that is no variable of the graph.
    """

    _symbols: ModuleType  # symbol.symbol, imported when the first block is made
    _group: Any  # the Symbol of all outputs
    _in_structure: Any
    _out_structure: Any
    _graph_cache: tuple[CachedGraph, list[Parameter]] | None

    def __init__(self, outputs: Any, inputs: Any, params: Any = None):
        super().__init__(prefix=None, params=None)
        self._prefix, self._params = (
            "",
            ParameterDict("", params if isinstance(params, ParameterDict) else None),
        )
        if isinstance(params, dict):
            self._params._params.update(params)
        self._name = ""
        from ..symbol import symbol as sym

        self.__dict__["_symbols"] = sym
        outputs = (
            outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) == 1 else outputs
        )
        if isinstance(outputs, sym.Symbol) and len(outputs.list_outputs()) > 1:
            outputs = [outputs[i] for i in range(len(outputs.list_outputs()))]
        flat_out, out_structure = flatten_call(outputs, sym.Symbol, "output")
        inputs = inputs[0] if isinstance(inputs, (list, tuple)) and len(inputs) == 1 else inputs
        flat_in, in_structure = flatten_call(inputs, sym.Symbol, "input")
        for s in flat_in:
            if len(s._outputs) != 1 or s._outputs[0].node.op is not None:
                raise StructureError(
                    f"Input symbols must be variable, but {s!r} is an output of operators"
                )
        group = sym.Group(flat_out)
        names = [s.name for s in flat_in]
        variables = {n: None for n in group.list_inputs()}
        self._data_names = names
        auxiliary = set(group.list_auxiliary_states())
        attrs = group.attr_dict()
        for name in variables:
            if name not in names:
                self.params.get(
                    name,
                    allow_deferred_init=True,
                    **_declared(attrs.get(name, {})),
                    **({"grad_req": "null"} if name in auxiliary else {}),
                )
        self.__dict__.update(
            _group=group,
            _out_structure=out_structure,
            _in_structure=in_structure,
            _graph_cache=None,
        )
        # structural names, as in parameter files: without the common prefix
        start = len(os.path.commonprefix(list(self.params)))
        self._reg_params.update((name[start:], p) for name, p in self.params.items())

    @staticmethod
    def imports(
        symbol_file: str | PathLike[str],
        input_names: str | Sequence[str],
        param_file: str | PathLike[str] | None = None,
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> SymbolBlock:
        """A network from files that `export` (or MXNet) wrote.

        input_names: names of the data variables. ctx: the device of the parameters (default: cpu).
        allow_missing: parameters may be missing in the file. ignore_extra: the file may have
            others. Raises MXNetError, OSError.
        """
        from ..symbol import symbol as sym

        graph = sym.load(os.fspath(symbol_file))
        input_names = [input_names] if isinstance(input_names, str) else list(input_names)
        for name in input_names:
            if name not in graph.list_inputs():
                raise MXNetError(
                    f"imports: {symbol_file} has no variable {name!r}, those are "
                    f"{', '.join(graph.list_inputs())}"
                )
        block = SymbolBlock(graph, [sym.var(n) for n in input_names])
        if param_file is not None:
            block._load_saved(os.fspath(param_file), ctx or cpu(), allow_missing, ignore_extra)
        return block

    def _load_saved(self, param_file, ctx, allow_missing=False, ignore_extra=False) -> None:
        params = self.collect_params()
        for p in params.values():
            p.dtype = "float32" if p.dtype is None else p.dtype
        params.load(
            param_file, ctx, allow_missing, ignore_extra, cast_dtype=True, dtype_source="saved"
        )

    def __repr__(self):
        n_in, n_out = len(self._data_names), len(self._group.list_outputs())
        return f"SymbolBlock(\n{self._group!r} : {n_in} -> {n_out}\n)"

    def _clear_traces(self):
        super()._clear_traces()
        self.__dict__["_graph_cache"] = None

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Moves the parameters to other devices."""
        self.collect_params().reset_ctx(ctx)

    def cast(self, dtype: DType) -> None:
        """Changes the dtype of all parameters."""
        self._clear_traces()
        for p in self.params.values():
            p.cast(dtype)

    # ---- calling ---------------------------------------------------------------------------------

    def forward(self, x: Any, *args: Any) -> Any:
        """Runs the graph on arrays, or composes it with Symbols."""
        given = x if isinstance(self._in_structure, tuple) and not args else (x, *args)
        flat, _ = flatten_call(given, (NDArray, self._symbols.Symbol), "input")
        if len(flat) != len(self._data_names):
            raise StructureError(
                f"SymbolBlock: needs {len(self._data_names)} inputs"
                f" ({', '.join(self._data_names)}), got {len(flat)}"
            )
        if not all(isinstance(a, NDArray) for a in flat):
            return self._compose(flat)
        if self._frozen is not None:
            return self._frozen((x, *args))
        graph, params = self._graph_of(flat)
        ctx = flat[0]._spec.device
        arrays = [*flat, *[p._data_on(ctx) for p in params]]
        if self._op_hooks:
            types = {v.node: a._spec.type for v, a in zip(graph.inputs, arrays)}
            typed = typed_graph([*graph.outputs, *graph.inputs], types, state.training)
            n = len(graph.outputs)
            made = monitored(typed[:n], typed[n:], arrays, self._op_hooks)
        else:
            made = graph(arrays)
        return unflatten(self._out_structure, made)

    _run = forward

    def _graphs(self):
        own = self._graph_cache
        return [*super()._graphs(), *([own[0]] if own is not None else [])]

    def _variables(self):
        nodes = {}
        for n in self._group.get_internals()._outputs:
            if n.node.op is None:
                nodes[n.node.name] = n
        return nodes

    def _graph_of(self, flat):
        if self._graph_cache is None:
            unknown = [p for p in self.params.values() if p._data is None]
            if unknown:
                self._find_shapes(flat)
            nodes = self._variables()
            params = [p for n, p in self.params.items() if n in nodes]
            absent = [n for n in self._data_names if n not in nodes]
            if absent:
                raise MXNetError(f"SymbolBlock: the graph does not use its input {absent[0]!r}")
            graph = CachedGraph(
                self._group._outputs,
                [*(nodes[n] for n in self._data_names), *(nodes[p.name] for p in params)],
                "symbolblock",
                len(self._data_names),
                True if self._recompute == "blocks" else self._recompute,  # there are none inside
            )
            self.__dict__["_graph_cache"] = graph, params
        return self._graph_cache

    def _find_shapes(self, flat) -> None:
        given = dict(zip(self._data_names, (a.shape for a in flat)))
        given.update((n, p.shape) for n, p in self.params.items() if p._data is not None)
        arguments, _, auxiliary = self._group.infer_shape_partial(**given)
        found = dict(
            zip(
                [*self._group.list_arguments(), *self._group.list_auxiliary_states()],
                [*arguments, *auxiliary],
            )
        )
        for name, p in self.params.items():
            if p._data is None:
                if not shape_is_known(p.shape) and shape_is_known(found.get(name)):
                    p.shape = found[name]
                p._finish_deferred_init()

    def infer_shape(self, *args: Any) -> None:
        """Infers the unknown shapes of parameters from inputs of known shape."""
        flat, _ = flatten_call(args, NDArray, "input")
        self._find_shapes(flat)

    def _compose(self, flat):
        """The graph on other Symbols; typed when a block around it is traced."""
        from ..graph.graph import Node, Value, rewrite
        from ..symbol.compose import _type, active

        nodes = self._variables()
        start = {
            nodes[n].node: [s._outputs[0]] for n, s in zip(self._data_names, flat) if n in nodes
        }
        start.update(
            {nodes[n].node: [p.var()._outputs[0]] for n, p in self.params.items() if n in nodes}
        )
        scope = active()

        def replace(node, inputs):
            if node.op is None:
                return None
            attrs = (
                dict(node.attrs, train=scope.train)
                if scope is not None and node.op.train_aware
                else node.attrs
            )
            made = Node(node.op, attrs, inputs, node.name, None, node.extra, node.source)
            if scope is not None:
                _type(made)
            return [Value(made, i) for i in range(made.n_outputs)]

        outputs = [self._symbols.Symbol([v]) for v in rewrite(self._group._outputs, replace, start)]
        return unflatten(self._out_structure, outputs)

    def _traced_symbol(self):
        return self._group, [self._symbols.var(n) for n in self._data_names]

    def export(
        self, path: str | PathLike[str], epoch: int = 0, remove_amp_cast: bool = True
    ) -> None:
        """Writes `path-symbol.json` and `path-%04d.params` (epoch)."""
        auxiliary = set(self._group.list_auxiliary_states())
        arrays = {
            f"{'aux' if n in auxiliary else 'arg'}:{n}": p._reduce() for n, p in self.params.items()
        }

        def write() -> None:
            self._group.save(f"{path}-symbol.json", remove_amp_cast=remove_amp_cast)
            serialization.save(f"{path}-{epoch:04d}.params", arrays)

        shard.write(self.params.values(), write)


def _declared(attrs: dict) -> dict:
    """Arguments of a Parameter from the attributes of its variable."""
    found: dict = {}
    if attrs.get("__shape__"):
        text = attrs["__shape__"].replace("(", "[").replace(")", "]").replace(",]", "]")
        shape = parse_json(text, "the shape of a variable")
        found["shape"] = tuple(max(n, 0) for n in shape)
    if attrs.get("__dtype__", "-1") != "-1":
        found["dtype"] = dtype_name(attrs["__dtype__"])
    for key, name in (("__lr_mult__", "lr_mult"), ("__wd_mult__", "wd_mult")):
        if key in attrs:
            found[name] = float(attrs[key])
    if "__init__" in attrs:
        found["init"] = attrs["__init__"]
    return found
