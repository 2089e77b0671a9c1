"""Block: the base class of layers and networks: children, parameters, names, hooks, files."""

from __future__ import annotations

import re
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from ..engine import Context, layers
from ..engine._layer import call as call_inside
from ..engine.error import InvalidType, InvalidValue, MissingMethod, MissingName, MXNetError
from ..kernels.spec import DType
from ..ndarray import serialization
from ..ndarray.ndarray import NDArray
from ..ndarray.nesting import as_lists, flatten, unflatten
from ..symbol.symbol import Symbol
from ..training import initializer
from . import block_state, layer_path, shard
from .hook import HookHandle
from .parameter import Parameter
from .parameter_dict import ParameterDict, check_names
from .scope import BlockScope
from .unready import owned

if TYPE_CHECKING:
    from .timeline import Timeline


def _flatten(args, inout_str: str) -> tuple[list, int | list]:
    """(all arrays or Symbols of nested lists in order, None included; their format): as MXNet code
    calls it. inout_str: "input" or "output", for the error. Raises ValueError for anything else
    inside."""

    def other(x, leaves: list):
        if x is not None and not isinstance(x, Symbol):
            raise InvalidValue(
                f"When hybridized, the {inout_str} of HybridBlock must be a (nested) list of Symbol"
                f" or NDArray, but got {x!r} of type {type(x).__name__}"
            )
        leaves.append(x)
        return -1 if x is None else len(x.list_outputs()) if len(x.list_outputs()) > 1 else 0

    leaves, form = flatten(args, NDArray, other)
    return leaves, as_lists(form)


def _regroup(args, fmt) -> Any:
    """The arrays nested as the format says."""

    def form(fmt):
        return tuple([form(f) for f in fmt]) if isinstance(fmt, list) else max(fmt, 0)

    return unflatten(form(fmt), args)


class Block:
    """Base class of neural network layers and models. Subclasses create children and parameters in
    `__init__` and define `forward`.

    Args:
        prefix: text before the names of parameters and children; by default the class's name and a
            counter, `dense0_`.
        params: ParameterDict of another block whose parameters this one shares.

    >>> class Net(nn.Block):
    ...     def __init__(self):
    ...         super().__init__()
    ...         with self.name_scope():
    ...             self.dense = nn.Dense(10)
    ...     def forward(self, x):
    ...         return self.dense(x)
    """

    _place: Any = None  # its layer, where it was called last: see layer_path
    _FOUND: tuple[str, ...] = ("_place",)  # attributes that calls made, which copies do not get

    # the constructor's argument for an unknown dimension
    size_argument: str | None = None

    def __init__(self, prefix: str | None = None, params: Any = None):
        if prefix is not None and not isinstance(prefix, str):
            raise InvalidType(
                f"{type(self).__name__}: prefix must be a str, got {type(prefix).__name__}"
                "\n  fix: give children to net.add(*blocks)"
            )
        self._empty_prefix = prefix == ""
        self._prefix, self._params = BlockScope.create(prefix, params, self._alias())
        self._name = self._prefix.removesuffix("_")
        self._scope = BlockScope(self)
        self._children: OrderedDict[str, Block] = OrderedDict()
        self._reg_params: dict[str, Parameter] = {}
        self._forward_hooks: OrderedDict = OrderedDict()
        self._forward_pre_hooks: OrderedDict = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in self._FOUND}

    def _alias(self) -> str:
        return self.__class__.__name__.lower()

    def _repr_html_(self) -> str:
        """In Jupyter: a tree of blocks and parameters, and the drawn graph once the block is
        hybridized and has run."""
        from .notebook import block_html

        return block_html(self)

    def __repr__(self):
        lines = [
            f"  ({key}): {_indent(repr(value))}"
            for key, value in self.__dict__.items()
            if isinstance(value, Block)
        ]
        return f"{type(self).__name__}(\n" + "\n".join(lines) + "\n)"

    # ---- children and parameters -----------------------------------------------------------------

    def __setattr__(self, name, value):
        old = self.__dict__.get(name)
        if (
            isinstance(old, (Parameter, Block))
            and not isinstance(value, type(old))
            and not isinstance(old, type(value))
        ):
            raise InvalidType(
                f"Changing attribute type for {name} from {type(old)} to {type(value)} is not"
                " allowed."
            )
        if isinstance(value, Block):
            self.register_child(value, name)
        elif isinstance(value, Parameter):
            if self._reg_params.get(name, value) is not value:
                raise MXNetError(
                    f"Overriding Parameter attribute {name} is not allowed.\n  fix: to share"
                    " parameters between blocks, give the block `params=` when it is made"
                )
            self._reg_params[name] = value
            owned(value, self)
        object.__setattr__(self, name, value)

    def register_child(self, block: Block, name: str | None = None) -> None:
        """Adds a child block; attribute assignment does this too."""
        if not isinstance(block, Block):
            raise InvalidType(
                f"{type(self).__name__}: a child must be a Block, got {type(block).__name__}"
            )
        children = self._children
        children[str(len(children)) if name is None else name] = block

    if not TYPE_CHECKING:  # a type checker knows the attributes that there are

        def __getattr__(self, name):
            if name in ("_children", "_reg_params", "_params", "_forward_pre_hooks", "_active"):
                raise MissingName(
                    f"{type(self).__name__}: Block's own __init__ must run first, it has no {name}"
                    " yet\n  fix: call super().__init__(**kwargs) at the head of __init__"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def prefix(self) -> str:
        """Text before the names of this block's parameters."""
        return self._prefix

    @property
    def name(self) -> str:
        """The prefix without its last underscore."""
        return self._name

    @property
    def params(self) -> ParameterDict:
        """This block's own parameters, without those of its children."""
        return self._params

    def name_scope(self) -> BlockScope:
        """`with self.name_scope():` blocks created inside get names with this block's prefix."""
        return self._scope

    def _warn_of_containers(self) -> None:
        children = set(self._children.values())

        def unregistered(value):
            if isinstance(value, (list, tuple)):
                return any(map(unregistered, value))
            if isinstance(value, dict):
                return any(map(unregistered, value.values()))
            return isinstance(value, Block) and value not in children

        for key, value in self.__dict__.items():
            if (
                isinstance(value, (list, tuple, dict))
                and not key.startswith("_")
                and unregistered(value)
            ):
                warnings.warn(
                    f'"{type(self).__name__}.{key}" is an unregistered container with Blocks. Note'
                    " that Blocks inside the list, tuple or dict will not be registered"
                    " automatically. Make sure to register them using register_child() or"
                    " switching to nn.Sequential/nn.HybridSequential instead.",
                    stacklevel=4,
                )

    def collect_params(self, select: str | None = None) -> ParameterDict:
        """Parameters of this block and of everything below it, by full name.

        select: regular expression that the names must match: `"conv1_weight|fc_.*"`.
        """
        self._warn_of_containers()
        found = ParameterDict(self._params.prefix)
        if select is None:
            found.update(self.params)
        else:
            pattern = re.compile(select)
            found._params.update((n, p) for n, p in self.params.items() if pattern.match(n))
        for child in self._children.values():
            found.update(child.collect_params(select))
        return found

    def _collect_params_with_prefix(self, prefix="") -> dict[str, Parameter]:
        """Parameters by structural name: `0.weight`, `body.1.bias`."""
        prefix = prefix + "." if prefix else ""
        found = {prefix + name: p for name, p in self._reg_params.items()}
        for name, child in self._children.items():
            found.update(child._collect_params_with_prefix(prefix + name))
        return found

    # a checkpoint calls these three: training.checkpoint.HasParameters

    def _structural_names(self) -> dict[Parameter, str]:
        return block_state.names(self._collect_params_with_prefix())

    def _saved_parameters(self) -> dict:
        return block_state.save(self._collect_params_with_prefix())

    def _restore_parameters(self, found: dict, where: str) -> None:
        block_state.restore(self._collect_params_with_prefix(), found, where)

    def apply(self, fn: Callable[[Block], Any]) -> Self:
        """Calls fn on every block below and on this one. Returns self."""
        for child in self._children.values():
            child.apply(fn)
        fn(self)
        return self

    def initialize(
        self,
        init: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initializes all parameters. init: default initializer (Uniform); ctx: device or list of
        devices."""
        init = initializer.Uniform() if init is None else init
        self.collect_params().initialize(init, ctx, verbose, force_reinit)

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Makes all HybridBlocks below run as graphs."""
        for child in self._children.values():
            child.hybridize(active, **kwargs)

    def cast(self, dtype: DType) -> None:
        """Changes the dtype of all parameters."""
        for child in self._children.values():
            child.cast(dtype)
        for parameter in self.params.values():
            parameter.cast(dtype)

    # ---- calling ---------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """Runs forward, with the hooks around it. What it returns is the subclass's: an array, a
        Symbol or nested lists of them; a `Layer` says more."""
        return call_inside(self, args) if layers.watched else self._call(*args)

    def _find_place(self, above):
        place = self.__dict__["_place"] = layer_path.find(self, above)
        return place

    def _call(self, *args):
        if self._forward_pre_hooks:
            for hook in list(self._forward_pre_hooks.values()):
                hook(self, args)
        out = self.forward(*args)
        if self._forward_hooks:
            for hook in list(self._forward_hooks.values()):
                hook(self, args, out)
        return out

    def forward(self, *args: Any) -> Any:
        """The computation, to be defined by subclasses. args: NDArrays, or nested lists of them."""
        raise MissingMethod(f"{type(self).__name__} must define forward(self, x, ...)")

    def register_forward_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Calls `hook(block, inputs, output)` after each forward. Returns a handle with
        `detach()`."""
        return HookHandle().attach(self._forward_hooks, hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Calls `hook(block, inputs)` before each forward. Returns a handle with `detach()`."""
        return HookHandle().attach(self._forward_pre_hooks, hook)

    def register_op_hook(self, callback: Callable[..., Any], monitor_all: bool = False) -> None:
        """Calls `callback(output name, operator name, array)` for each operator of hybridized
        blocks below.

        monitor_all: for the operators' inputs, too.
        """
        for child in self._children.values():
            child.register_op_hook(callback, monitor_all)

    def summary(self, *inputs: Any, style: str = "mxnet") -> None:
        """Prints layers, output shapes and numbers of parameters for the given inputs. The block
        must be initialized.

        style: "mxnet" (a flat table), or "tree" (blocks inside indented, with multiply-adds
            and the bytes of weights and outputs).
        """
        from .summary import print_summary

        print_summary(self, inputs, style)

    def timeline(
        self,
        *inputs: Any,
        loss: Any = None,
        labels: Any = None,
        backward: bool = False,
        trainer: Any = None,
        warmup: int = 3,
        path: str | PathLike[str] | None = None,
    ) -> Timeline:
        """Runs one step and draws it: threads over time, each operation with its layer, waits, the
        arrow from each push to its operation, and the critical path.

        Args:
            inputs: as for a call.
            loss, labels: the step computes loss(net(*inputs), *labels).
            backward: with gradients. trainer: with its step too, which changes the parameters.
            warmup: steps before the one that is drawn: they finish initialization and compile.
            path: also writes the picture, SVG, there.
        Returns: a Timeline: shows itself in Jupyter; `.svg`, `.save(path)`, `.critical_path`;
            printed, it says what the step's time consists of.
        """
        from .timeline import timeline

        made = timeline(self, inputs, loss, labels, backward, trainer, warmup)
        if path is not None:
            made.save(path)
        return made

    _is_container = False  # only calls its children: not a layer in a summary

    def _macs(self, args, out) -> int:
        """Multiply-accumulates of a call, for `summary`; 0 if not counted."""
        return 0

    # ---- files -----------------------------------------------------------------------------------

    def save_parameters(self, filename: str | PathLike[str], deduplicate: bool = False) -> None:
        """Writes all parameters to a .params file under structural names (`0.weight`).

        deduplicate: a parameter that several blocks share is written once. Where parameters are
            split over ranks, all ranks call it, and the first writes.
        """
        arrays, seen = {}, set()
        for name, parameter in self._collect_params_with_prefix().items():
            if deduplicate and parameter in seen:
                continue
            seen.add(parameter)
            if parameter._data is None:
                raise parameter._not_initialized()
            arrays[name] = parameter._reduce()
        shard.write(seen, lambda: serialization.save(filename, arrays))

    def load_parameters(
        self,
        filename: str | PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Reads parameters from a file with structural names (`0.weight`), full names
        (`net0_dense0_weight`, with or without this block's prefix), or those of `export`
        (`arg:...`, `aux:...`).

        Raises ParameterError with the differing and the nearest names when file and block do not
        match.
        """
        loaded = serialization.load(filename)
        if not isinstance(loaded, dict):
            raise MXNetError(
                f"load_parameters: file '{filename}' holds arrays without names\n"
                "  fix: write it with save_parameters"
            )
        where = f"file '{filename}'"
        self._load(loaded, where, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source)

    def load_dict(
        self,
        param_dict: dict[str, NDArray],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Takes parameters from a dict with the names that load_parameters knows."""
        if not isinstance(param_dict, dict):
            raise InvalidType(
                f"load_dict: needs a dict of name -> NDArray, got {type(param_dict).__name__}"
            )
        self._load(
            param_dict, "param_dict", ctx, allow_missing, ignore_extra, cast_dtype, dtype_source
        )

    def _load(
        self, loaded, where, ctx, allow_missing, ignore_extra, cast_dtype, dtype_source
    ) -> None:
        loaded = {re.sub("^(arg|aux):", "", k): v for k, v in loaded.items()}
        params, given = self._match_names(loaded)
        shared: dict[Parameter, list[str]] = {}
        for name, parameter in params.items():
            shared.setdefault(parameter, []).append(name)
        present = dict(given)
        for names in shared.values():  # one name of a shared parameter suffices
            value = next((given[n] for n in names if n in given), None)
            if value is not None:
                present.update((n, value) for n in names)
        check_names(params, present, where, allow_missing, ignore_extra)
        for name, value in given.items():  # nothing is written unless everything matches
            if name in params:
                params[name]._check_load(value, cast_dtype)
        for name, value in given.items():
            if name in params:
                params[name]._load_init(
                    value, ctx, cast_dtype=cast_dtype, dtype_source=dtype_source
                )

    def _match_names(self, loaded):
        """Selects the naming style that matches most names of a file: (parameters by name, the
        file's arrays by name)."""
        structural = self._collect_params_with_prefix()
        full = {p.name: p for p in structural.values()}
        full.update(self.collect_params().items())
        styles = [structural, full, {n.removeprefix(self.prefix): p for n, p in full.items()}]
        if loaded and not any("." in n for n in loaded):
            styles.append(styles.pop(0))
        best = max(styles, key=lambda names: sum(n in names for n in loaded))
        return best, loaded

    def save_params(self, filename: str | PathLike[str]) -> None:
        """The old form of save_parameters: full names without this block's prefix."""
        warnings.warn("save_params is deprecated. Please use save_parameters.", stacklevel=2)
        self.collect_params().save(filename, strip_prefix=self.prefix)

    def load_params(
        self,
        filename: str | PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
    ) -> None:
        """Old name of load_parameters."""
        warnings.warn("load_params is deprecated. Please use load_parameters.", stacklevel=2)
        self.load_parameters(filename, ctx, allow_missing, ignore_extra)

    def save(self, prefix: str) -> None:
        """Writes `prefix-model.json` (structure and traced graphs) and `prefix-model.params`."""
        from .model_file import save_model

        save_model(self, prefix)

    def load(self, prefix: str) -> None:
        """Reads what `save` wrote into a block of the same structure. Its children get their names
        in the file."""
        from .model_file import load_model

        load_model(self, prefix)


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")
