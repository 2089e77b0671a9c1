"""Parameter and Constant: a trained (or constant) array of a block, its copies on each device, and
its gradient."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from ..dist.mesh import Part
from ..engine import Context, cpu, current_context
from ..engine.error import InvalidType, InvalidValue, MXNetError
from ..kernels.record import dtype_name
from ..kernels.spec import STYPES, DType
from ..ndarray import NDArray, autograd, functions
from ..ndarray.launch import copy_into
from ..ndarray.ndarray import from_memory
from ..ndarray.numpy_mode import in_mode, is_np_array, is_np_shape
from ..training import initializer
from . import shard as shards
from . import unready
from .sparse_rows import SparseRows
from .tracing import tracing_state


class DeferredInitializationError(MXNetError):
    """A parameter was read before its shape, and so its initialization, was complete."""


class ParameterError(InvalidValue):
    """A shape, attribute or name that does not match a parameter."""


def shape_is_known(shape: Sequence[int] | None) -> bool:
    """Are all dimensions of a shape known? 0 and -1 stand for unknown ones; so does a missing shape
    and, unless `np_shape` is on, an empty one."""
    if shape is None or not (shape or is_np_shape()):
        return False
    return all([n > 0 for n in shape])


def context_list(ctx: Context | Sequence[Context] | None) -> list[Context]:
    """ctx (a Context, several, or None for the current one) as a list."""
    if ctx is None:
        return [current_context()]
    contexts: list[Any] = list(ctx) if isinstance(ctx, (list, tuple)) else [ctx]
    odd = [c for c in contexts if not isinstance(c, Context)]
    if odd or not contexts:
        raise InvalidType(f"ctx must be a Context or a list of them, got {ctx!r}\n  fix: mx.cpu()")
    return contexts


class Kind:
    """The specs of held arrays: one object as long as they are equal, to look up programs by."""

    __slots__ = ("specs",)

    def __init__(self, specs: tuple):
        self.specs = specs


class Held:
    """The arrays of some parameters, each on a device, as a call of a graph reads them. Looked up
    once: until any parameter gets other arrays."""

    __slots__ = ("__weakref__", "_kinds", "_read", "_since", "placed")
    _now: ClassVar[object] = object()  # another one after each change
    _looked_up: ClassVar[weakref.WeakSet[Held]] = weakref.WeakSet()

    def __init__(self, placed: Sequence[tuple[Parameter, Context]]):
        self.placed = list(placed)
        self._kinds: dict[tuple, Kind] = {}
        self._read: tuple[list[NDArray], Kind] = ([], Kind(()))
        self._since: object = None

    def arrays(self) -> list[NDArray]:
        """One list as long as they are the same. Raises what Parameter.data raises."""
        return self.read()[0]

    def read(self) -> tuple[list[NDArray], Kind]:
        """`arrays`, and their Kind."""
        read = self._read
        if self._since is Held._now:
            return read
        now = Held._now  # before they are read: what changes after it shows
        found = [p._data_on(c) for p, c in self.placed]
        specs = tuple([a._spec for a in found])
        Held._looked_up.add(self)
        self._read = read = found, self._kinds.setdefault(specs, Kind(specs))
        self._since = now
        return read

    @staticmethod
    def replaced() -> None:
        """A parameter got other arrays, or none: nothing here keeps those it had."""
        Held._now = object()
        while Held._looked_up:
            held = Held._looked_up.pop()
            held._since, held._read = None, ([], Kind(()))


class Parameter(SparseRows):
    """A named array that blocks share, one copy for each device.

    Args:
        shape: tuple with 0 for dimensions that are inferred at the first forward pass.
        grad_req: "write", "add" or "null".
        lr_mult, wd_mult: factors on the optimizer's learning rate and weight decay.
        init: initializer (or its name) for this parameter only.
        stype, grad_stype: storage types of the data and the gradient: default, row_sparse or csr.
        shard: for each axis an axis of the mesh over which it is split, or None: ("model", None).
            The shape is that of the whole; data and gradient are this rank's part.
    """

    def __init__(
        self,
        name: str,
        grad_req: str = "write",
        shape: int | Sequence[int] | None = None,
        dtype: DType = np.float32,
        lr_mult: float = 1.0,
        wd_mult: float = 1.0,
        init: Any = None,
        allow_deferred_init: bool = False,
        differentiable: bool = True,
        stype: str = "default",
        grad_stype: str = "default",
        shard: Sequence[str | None] | None = None,
    ):
        for kind, value in (("stype", stype), ("grad_stype", grad_stype)):
            if value not in STYPES:
                raise ParameterError(
                    f"Parameter '{name}': {kind} must be default, row_sparse or csr, got {value!r}"
                )
        self.name, self._dtype, self.init = name, dtype, init
        self.lr_mult, self.wd_mult = lr_mult, wd_mult
        self._stype, self._grad_stype = stype, grad_stype
        self._shape = (
            (shape,) if isinstance(shape, int) else None if shape is None else tuple(shape)
        )
        if self._shape is not None and min(self._shape, default=0) < 0:  # unknown under np_shape
            self._shape = tuple([max(n, 0) for n in self._shape])
        self._allow_deferred_init, self._differentiable = allow_deferred_init, differentiable
        self._var = None
        self._data = None
        self._grad: list[NDArray] | None = None
        self._ctx_list: list[Context] | None = None
        self._deferred_init: tuple = ()  # (init, contexts, default init, data or None)
        self._trainer: Any = None  # the Trainer that updates it
        self._owner: Any = None  # a weak reference to the block that created it
        self._shard: tuple[str | None, ...] | None = None
        self._part: Part | None = None  # where it is split over more than one rank
        self._of_np = is_np_array()  # are its arrays and Symbols of mx.np?
        self._frozen: Any = None  # frozen.Frozen, of a block with this parameter
        self._freed = False  # by that
        self._grad_req = ""
        self.grad_req = grad_req
        self.shard = shard

    def __repr__(self):
        return f"{type(self).__name__} {self.name} (shape={self.shape}, dtype={self.dtype})"

    def __reduce__(self):
        return _rebuild, (
            type(self),
            self._attributes(),
            None if self._data is None else self._reduce().asnumpy(),
            self._of_np,
        )

    def _attributes(self) -> dict:
        return {
            "name": self.name,
            "grad_req": self.grad_req,
            "shape": self._shape,
            "dtype": dtype_name(self.dtype),
            "lr_mult": self.lr_mult,
            "wd_mult": self.wd_mult,
            "allow_deferred_init": self._allow_deferred_init,
            "differentiable": self._differentiable,
            "stype": self._stype,
            "grad_stype": self._grad_stype,
            "shard": self._shard,
        }

    # ---- attributes ------------------------------------------------------------------------------

    @property
    def grad_req(self) -> str:
        return self._grad_req

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req not in ("write", "add", "null"):
            raise ParameterError(
                f"grad_req must be one of 'write', 'add', or 'null', but got '{req}'"
            )
        if not self._differentiable:
            req = "null"
        if req == self._grad_req:
            return
        self._grad_req = req
        if self._data is None:
            return
        if req == "null":
            self._grad = None
            for array in self._data:
                array._tape = None
        else:
            self._init_grad()

    @property
    def dtype(self) -> Any:
        """The dtype of data and gradient; setting it converts them."""
        return self._dtype

    @dtype.setter
    def dtype(self, dtype: DType) -> None:
        self.cast(dtype)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """Unknown dimensions are 0; under `np_shape`, where sizes may be 0, -1."""
        if self._shape is None or not is_np_shape():
            return self._shape
        return tuple([n or -1 for n in self._shape])

    @shape.setter
    def shape(self, new: Any) -> None:
        if new is None:
            return
        new = tuple([max(n, 0) for n in new])
        if self._shape is None:
            self._shape = new
            return
        if len(self._shape) != len(new) or any(a > 0 and a != b for a, b in zip(self._shape, new)):
            raise ParameterError(
                f"Parameter '{self.name}': Expected shape {new} is incompatible with given shape "
                f"{self._shape}."
            )
        self._shape = new

    @property
    def shard(self) -> tuple[str | None, ...] | None:
        """For each axis the axis of the mesh over which it is split, or None. Setting it keeps this
        rank's part of the data."""
        return self._shard

    @shard.setter
    def shard(self, axes: Sequence[str | None] | None) -> None:
        axes = None if axes is None else tuple(axes)
        if axes == self._shard:
            return
        if wrong := shards.misuse(self, axes):
            raise ParameterError(f"Parameter '{self.name}': {wrong}")
        whole = None if self._data is None else self._reduce()
        shards.split(self, axes)
        if whole is not None:
            self._init_impl(whole, self._ctx_list)

    def _own(self, whole: NDArray) -> NDArray:
        """What this rank keeps of the whole array."""
        if self._part is None:
            return whole
        if wrong := shards.misfit(self, whole.shape):
            raise ParameterError(f"Parameter '{self.name}': {wrong}")
        return self._part.of(whole)

    def _sizes(self) -> tuple[int, ...]:
        """The shape of a parameter that was created with one, as those of layers are; 0 stands
        for an unknown size."""
        assert self._shape is not None
        return self._shape

    @property
    def stype(self) -> str:
        return self._stype

    @property
    def grad_stype(self) -> str:
        return self._grad_stype

    # ---- initialization --------------------------------------------------------------------------

    def initialize(
        self,
        init: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        default_init: Any = None,
        force_reinit: bool = False,
    ) -> None:
        """Creates the data on each device of ctx and fills it: by init, else self.init, else
        default_init.

        With an unknown shape this is deferred to the first forward pass (allow_deferred_init), or
        ParameterError is raised. An initialized parameter is kept unless force_reinit.
        """
        if self._data is not None and not force_reinit:
            warnings.warn(
                f"Parameter '{self.name}' is already initialized, ignoring. Set force_reinit=True"
                " to re-initialize.",
                stacklevel=2,
            )
            return
        self._data = self._grad = None
        contexts = context_list(ctx)
        for c in contexts:
            c.check()
        if len(set(contexts)) != len(contexts):
            raise ParameterError(
                f"Parameter '{self.name}': each context must be given once, got {contexts}"
            )
        self._of_np = self._of_np or is_np_array()
        default_init = initializer.Uniform() if default_init is None else default_init
        if init is None:
            init = default_init if self.init is None else self.init
        if not shape_is_known(self._shape) and not self._allow_deferred_init:
            raise ParameterError(unready.bad_shape(self))
        self._deferred_init = (init, contexts, default_init, None)
        if shape_is_known(self._shape):
            self._finish_deferred_init()

    def _finish_deferred_init(self) -> None:
        if not self._deferred_init:
            return
        init, contexts, default_init, data = self._deferred_init
        if not shape_is_known(self._shape):
            raise ParameterError(unready.bad_shape(self))
        self._deferred_init = ()
        with autograd.pause():
            if data is None:
                data = functions.zeros(self._sizes(), ctx=cpu(), dtype=self.dtype)
                # Mixed and Load use the name
                own = isinstance(init, (str, initializer.Initializer))
                initializer.create(default_init if own else init)(
                    initializer.InitDesc(self.name, {"__init__": init} if own else {}), data
                )
            if self._part is not None:
                shards.same_everywhere(self, data)
            self._init_impl(data, contexts)

    def _init_impl(self, data: NDArray, contexts) -> None:
        """data: of the whole parameter."""
        self._changes()
        self._freed = False
        data = self._own(data)
        self._ctx_list = list(contexts)
        if data.stype != self._stype:
            data = data.tostype(self._stype)
        data = self._in_mode(data)
        self._data = [
            data.copyto(c) if c != data.context or i else data.copy()
            for i, c in enumerate(contexts)
        ]
        self._init_grad()
        if self._trainer is not None:
            self._trainer._parameter_has_data()

    def _in_mode(self, x: Any) -> Any:
        """An array or Symbol of it, of the class that it has."""
        dense = getattr(x, "stype", "default") == "default"
        return x.as_np_ndarray() if self._of_np and dense else x

    def _init_grad(self) -> None:
        assert self._data is not None
        if self.grad_req == "null":
            self._grad = None
            for array in self._data:
                array._tape = None
            return
        self._grad = [
            self._in_mode(
                functions.zeros(a.shape, a.context, a._spec.dtype, stype=self._grad_stype)
            )
            for a in self._data
        ]
        autograd.mark_variables(self._data, self._grad, self.grad_req)

    def _check_load(self, data, cast_dtype=False) -> None:
        """Raises ParameterError if loaded data does not have this parameter's shape and dtype.
        Changes nothing."""
        if self._shape is not None and (
            len(self._shape) != len(data.shape)
            or any(a not in (0, -1) and a != b for a, b in zip(self._shape, data.shape))
        ):
            raise ParameterError(
                f"Failed loading Parameter '{self.name}' from saved params: shape incompatible "
                f"expected {self._shape} vs saved {data.shape}"
            )
        if dtype_name(self.dtype) != dtype_name(data.dtype) and not cast_dtype:
            raise ParameterError(
                f"Failed loading Parameter '{self.name}' from saved params: dtype incompatible"
                f" expected {dtype_name(self.dtype)} vs saved {dtype_name(data.dtype)}. Set"
                " cast_dtype=True to cast the dtype of saved params."
            )

    def _load_init(
        self, data: NDArray | np.ndarray, ctx, cast_dtype=False, dtype_source="current"
    ) -> None:
        """Takes loaded data: checks shape and dtype, then becomes initialized with it on ctx."""
        if not isinstance(data, NDArray):
            data = from_memory(np.asarray(data))
        self._check_load(data, cast_dtype)
        if self._shape is not None:
            self._shape = tuple(a if a > 0 else b for a, b in zip(self._shape, data.shape))
        else:
            self._shape = tuple(data.shape)
        if dtype_name(self.dtype) != data._spec.dtype:
            if dtype_source == "current":
                data = data.astype(self.dtype)
            elif dtype_source == "saved":
                self.cast(data.dtype)
            else:
                raise ParameterError(
                    f"dtype_source must be 'current' or 'saved', got {dtype_source!r}"
                )
        ctx = None if ctx is None else context_list(ctx)
        if self._data is None:
            if self._deferred_init:
                ctx = ctx or self._deferred_init[1]
            self._deferred_init = ()
            self._init_impl(data, ctx or [cpu()])
        elif ctx is not None and set(ctx) != set(self._ctx_list or ()):
            raise ParameterError(
                f"Failed to load Parameter '{self.name}' on {ctx} because it was previous"
                f" initialized on {self.list_ctx()}.\n  fix: reset_ctx() first"
            )
        else:
            self.set_data(data)

    @property
    def _ctx_map(self) -> list | None:
        """The position of each device in _data, indexed by the parity of its type and its id, as
        libraries written for MXNet expect."""
        if self._ctx_list is None:
            return None
        found: list[list] = [[], []]
        for i, ctx in enumerate(self._ctx_list):
            places = found[ctx.device_typeid & 1]
            places += [None] * (ctx.device_id + 1 - len(places))
            places[ctx.device_id] = i
        return found

    # ---- access ----------------------------------------------------------------------------------

    @property
    def _data(self) -> list[NDArray] | None:
        """The arrays on all devices; a list that never changes."""
        return self._arrays

    @_data.setter
    def _data(self, arrays: list[NDArray] | None) -> None:
        self._arrays = arrays
        Held.replaced()

    def data(self, ctx: Context | Sequence[Context] | None = None) -> NDArray:
        """The array on ctx (default: the only one, or the current device's). While tracing: the
        Symbol.

        Raises DeferredInitializationError, or MXNetError when not initialized (there) or stored
        sparse: see row_sparse_data.
        """
        if self._stype != "default":
            raise MXNetError(
                f"Cannot return a copy of Parameter '{self.name}' on ctx {ctx} via data() because"
                f" its storage type is {self._stype}. Please use row_sparse_data() instead."
            )
        if tracing_state.tracer is not None:
            return self.var()
        return self._data_on(ctx)

    def _data_on(self, ctx=None) -> NDArray:
        arrays = self._arrays
        if arrays is None:
            raise self._not_initialized()
        if ctx is None:
            if len(arrays) == 1:
                return arrays[0]
            ctx = current_context()
        for array in arrays:
            device = array._spec.device
            if device is ctx or device == ctx:
                return array
        for array in arrays:
            if array._spec.device.same_memory(ctx):
                return array
        raise MXNetError(
            f"Parameter '{self.name}' was not initialized on context {ctx}. It was only initialized"
            f" on {self._ctx_list}.\n  fix: net.initialize(ctx=[...]) or"
            " net.collect_params().reset_ctx(...)"
        )

    def list_data(self) -> list[NDArray]:
        """The arrays on all devices, in the order of initialization."""
        if self._stype != "default":
            raise MXNetError(
                f"Cannot return copies of Parameter '{self.name}' on all contexts via list_data()"
                f" because its storage type is {self._stype}. Please use row_sparse_data() instead."
            )
        if self._data is None:
            raise self._not_initialized()
        return list(self._data)

    def grad(self, ctx: Context | Sequence[Context] | None = None) -> NDArray:
        """The gradient on ctx. Raises MXNetError when grad_req is null, or as data() does."""
        data = self._data_on(ctx)
        return self.list_grad()[next(i for i, a in enumerate(self._data or ()) if a is data)]

    def list_grad(self) -> list[NDArray]:
        """The gradients on all devices."""
        if self._data is None:
            raise self._not_initialized()
        if self._grad is None:
            raise MXNetError(
                f"Cannot get gradient array for Parameter '{self.name}' because grad_req='null'\n"
                "  fix: set its grad_req to 'write' or 'add' before training"
            )
        return list(self._grad)

    def list_ctx(self) -> list[Context]:
        """The devices it is (or will be) initialized on."""
        if self._data is None:
            if self._deferred_init:
                return list(self._deferred_init[1])
            raise MXNetError(f"Parameter '{self.name}' has not been initialized")
        return list(self._ctx_list or ())

    def _changes(self) -> None:
        """A network that was frozen with other values is frozen no more."""
        if self._frozen is not None:
            self._frozen.end()

    def _not_initialized(self) -> MXNetError:
        if self._freed:
            return MXNetError(unready.freed(self))
        if self._deferred_init:
            return DeferredInitializationError(unready.deferred(self))
        return MXNetError(unready.missing(self))

    # ---- changes ---------------------------------------------------------------------------------

    def set_data(self, data: Any) -> None:
        """Sets the value on every device. data: array of the parameter's shape."""
        if not isinstance(data, NDArray):
            data = from_memory(np.asarray(data, dtype=np.float32))
        self.shape = data.shape
        if self._data is None:
            if not self._deferred_init:
                raise self._not_initialized()
            self._deferred_init = (*self._deferred_init[:3], data)
            return
        self._changes()
        if self._trainer is not None:
            self._trainer._parameter_was_set(self)
        with autograd.pause():
            data = self._own(data)
            for array in self._data:
                copy_into(data, array)

    def zero_grad(self) -> None:
        """Sets the gradients on all devices to zero."""
        for g in self._grad or ():
            if g.stype != "default":
                copy_into(functions.zeros_like(g), g)
                continue
            functions._zeros(shape=g.shape, dtype=g._spec.dtype, ctx=g.context, out=g)

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Moves the data to other devices."""
        contexts = context_list(ctx)
        if self._data is not None:
            data = self._reduce()
            with autograd.pause():
                self._init_impl(data, contexts)
        elif self._deferred_init:
            init, _, default_init, data = self._deferred_init
            self._deferred_init = (init, contexts, default_init, data)
        else:
            raise InvalidValue(
                f"Cannot reset context for Parameter '{self.name}' because it has not been"
                " initialized.\n  fix: net.initialize()"
            )

    def cast(self, dtype: DType) -> None:
        """Changes the dtype of data and gradient."""
        changed = self._dtype is None or dtype_name(dtype) != dtype_name(self._dtype)
        self._dtype, self._var = dtype, None
        if changed:
            self._changes()
        if self._data is None or not changed:
            return
        with autograd.pause():
            self._data = [a.astype(dtype) for a in self._data]
            self._init_grad()

    def var(self) -> Any:
        """The Symbol variable that stands for this parameter in graphs; while tracing, that of the
        trace."""
        if tracing_state.tracer is not None:
            return tracing_state.tracer.var(self)
        if self._var is None:
            self._var = self._make_var()
        return self._var

    def _make_var(self):
        from ..symbol import symbol

        made = symbol.var(
            self.name,
            shape=self.shape,
            dtype=self.dtype,
            lr_mult=self.lr_mult,
            wd_mult=self.wd_mult,
            init=self.init,
            stype=self._stype,
        )
        return made.as_np_ndarray() if self._of_np else made

    def _reduce(self) -> NDArray:
        """The value on cpu; the mean over devices, so that per-device statistics are combined. Of a
        sharded parameter the whole, for which all ranks of its group call this."""
        if self._stype != "default" and self._trainer is not None:
            data = functions.zeros(self._sizes(), cpu(), self.dtype, stype=self._stype)
            self._trainer._row_sparse_pull(self, data, None, full_idx=True)
            return data
        if self._data is None:
            raise self._not_initialized()
        if self._part is not None:
            return shards.whole(self, self._data[0])
        if len(self._data) == 1:
            return self._data[0].copyto(cpu())
        with autograd.pause():
            copies = [a.copyto(cpu()) for a in self._data]
            return functions.add_n(*copies) / len(copies)


def _rebuild(cls, attributes, data, of_np=False):
    if cls is Constant:
        parameter = Constant(attributes["name"], data)
    else:
        parameter = cls(**attributes)
    parameter._of_np = of_np
    if data is not None:
        parameter._load_init(from_memory(data), None)
    return parameter


class Constant(Parameter):
    """A parameter that is never trained; it is saved and moved with its block."""

    def __init__(self, name: str, value: Any):
        if not isinstance(value, NDArray):
            value = in_mode(functions.array(value))
        self.value = value
        klass = type(
            f"Constant_{name}",
            (initializer.Initializer,),
            {"_init_weight": lambda self, _, arr: copy_into(value, arr)},
        )
        super().__init__(
            name,
            grad_req="null",
            shape=value.shape,
            dtype=value.dtype,
            init=klass(),
            differentiable=False,
        )
        self._grad_req = "null"
        self._of_np = value.__class__ is not NDArray and value.stype == "default"

    @property
    def grad_req(self) -> str:
        return "null"

    @grad_req.setter
    def grad_req(self, req: str) -> None:
        if req != "null":
            warnings.warn(
                f"Constant parameter {self.name} does not support grad_req other than 'null', and"
                f" new value {req} is ignored.",
                stacklevel=2,
            )


def __getattr__(name):
    if name != "tensor_types":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..symbol.symbol import Symbol  # imports symbols only if needed

    return Symbol, NDArray
