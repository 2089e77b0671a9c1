"""Optimizer: the base class; learning rate and decay of each weight, update counts, the registry,
and calls of update operators."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, ClassVar

from ...engine import location
from ...engine.error import InvalidValue, MissingMethod, compose, did_you_mean
from ...kernels.plan import make_plan, scalars_of
from ...kernels.record import lookup
from ...kernels.spec import DType
from ...ndarray import NDArray, functions
from ...ndarray.invoke import invoke
from ...ndarray.launch import call, copy_into
from ...ndarray.saved_state import Stateful
from ..lr_scheduler import LRScheduler
from .update_plan import UpdatePlan

MAX_PLANS = 8  # that an updater remembers


class OptimizerError(InvalidValue):
    """An unknown optimizer, or invalid use of one."""


class UnknownOption(OptimizerError, TypeError):
    """A parameter that an optimizer does not have."""


def _parameters_of(klass) -> set[str]:
    """Names that a class and its bases take as keywords; empty where they are unknown."""
    names: set[str] = set()
    for k in klass.__mro__[:-1]:
        if "__init__" not in k.__dict__:
            continue
        found = inspect.signature(k.__init__).parameters.values()
        names |= {p.name for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind is p.VAR_KEYWORD for p in found):
            break
    return names - {"self"}


class Optimizer(Stateful):
    """Base class of optimizers. Subclasses define `create_state(index, weight)` and `update(index,
    weight, grad, state)`.

    Args:
        rescale_grad: factor on gradients. clip_gradient: bound on each of their elements.
        learning_rate, lr_scheduler: the rate, or a function of the number of updates that gives it.
        wd: weight decay. param_idx2name: names by index. param_dict: Parameters by index, whose
            lr_mult and wd_mult count.
        multi_precision: 16-bit weights keep a float32 copy.
        begin_num_update: where the count of updates starts.
    """

    opt_registry: ClassVar[dict[str, type]] = {}
    # Does each element of a weight depend only on the same elements of weight, gradient and state?
    # Then ranks can share the update of a weight. Not inherited: a subclass may take norms.
    elementwise: ClassVar[bool] = False
    # where the updater that calls remembers plans; None: nowhere
    _plans: dict[int, UpdatePlan] | None = None

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        cls.elementwise = vars(cls).get("elementwise", False)

    def __init__(
        self,
        rescale_grad: float = 1.0,
        param_idx2name: Any = None,
        wd: float = 0.0,
        clip_gradient: float | None = None,
        learning_rate: float | None = None,
        lr_scheduler: LRScheduler | None = None,
        sym: Any = None,
        begin_num_update: int = 0,
        multi_precision: bool = False,
        param_dict: Any = None,
    ):
        self.rescale_grad, self.wd, self.clip_gradient = rescale_grad, wd, clip_gradient
        self.lr_scheduler = lr_scheduler
        self.lr: Any = learning_rate  # None: the scheduler decides
        if learning_rate is None and lr_scheduler is None:
            self.lr = 0.01
        if lr_scheduler is not None and learning_rate is not None:
            lr_scheduler.base_lr = learning_rate
        self.begin_num_update = self.num_update = begin_num_update
        self._all_index_update_counts: dict[int, dict] = {0: {}}
        self._index_update_count = self._all_index_update_counts[0]
        self.multi_precision, self.aggregate_num = multi_precision, 0
        if param_idx2name is None:
            param_idx2name = {}
        if not isinstance(param_idx2name, dict):
            raise OptimizerError(
                "param_idx2name should be a dict of param indexes to names, got "
                f"{type(param_idx2name).__name__}"
            )
        self.idx2name = dict(param_idx2name)
        self.sym_info = (sym.attr_dict(), sym.list_arguments()) if sym is not None else ()
        self.param_dict = param_dict or {}
        self.lr_mult: dict = {}
        self.wd_mult: dict = {}
        self.set_lr_mult({})
        self.set_wd_mult({})

    # ---- registry --------------------------------------------------------------------------------

    @staticmethod
    def register(klass: type) -> Any:
        """Class decorator: makes an optimizer known under its name in lower case."""
        Optimizer.opt_registry[klass.__name__.lower()] = klass
        return klass

    @staticmethod
    def create_optimizer(name: str, **kwargs: Any) -> Optimizer:
        """An optimizer by name. Raises OptimizerError."""
        klass = Optimizer.opt_registry.get(name.lower())
        if klass is None:
            known = Optimizer.opt_registry
            fix = did_you_mean(name, known) or f"one of {', '.join(sorted(known))}"
            raise OptimizerError(compose(f"Cannot find optimizer {name}", fix=fix))
        allowed = _parameters_of(klass)
        unknown = [k for k in kwargs if k not in allowed]
        if unknown and allowed:
            rule = (
                f"{klass.__name__} has no parameter {unknown[0]!r}, its parameters are "
                f"{', '.join(sorted(allowed))}"
            )
            raise UnknownOption(compose(rule, fix=did_you_mean(unknown[0], allowed)))
        return klass(**kwargs)

    # ---- to be defined by subclasses -------------------------------------------------------------

    def create_state(self, index: Any, weight: Any) -> Any:
        """The state of one weight: None, an array, or a tuple of arrays."""

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """One step of one weight, in place (or of lists of them, when aggregate_num > 0)."""
        raise MissingMethod(
            f"{type(self).__name__} must define update(self, index, weight, grad, state)"
        )

    def _keeps_copy(self, weight) -> bool:
        return self.multi_precision and weight._spec.dtype in ("float16", "bfloat16")

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """create_state, with a float32 copy of a 16-bit weight before it when multi_precision."""
        if self._keeps_copy(weight):
            copy = weight.astype("float32")
            return copy, self.create_state(index, copy)
        self._warn_of_precision(weight)
        return self.create_state(index, weight)

    def _warn_of_precision(self, weight) -> None:
        if weight._spec.dtype == "float16" and not self.multi_precision:
            warnings.warn(
                "Accumulating with float16 in optimizer can lead to poor accuracy or slow"
                " convergence. Consider using multi_precision=True option of the optimizer",
                stacklevel=2,
            )

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """update, on the float32 copy of a 16-bit weight when there is one."""
        if not self._keeps_copy(weight):
            self.update(index, weight, grad, state)
            return
        copy, state = state
        self.update(index, copy, grad.astype("float32"), state)
        copy_into(copy, weight)

    # ---- rates -----------------------------------------------------------------------------------

    @property
    def learning_rate(self) -> float:
        """The current learning rate."""
        return self.lr_scheduler(self.num_update) if self.lr_scheduler is not None else self.lr

    def set_learning_rate(self, lr: float) -> None:
        """Sets the learning rate. Raises UserWarning if a scheduler sets it."""
        if self.lr_scheduler is not None:
            raise UserWarning(
                "LRScheduler of the optimizer has already been defined. Note that set_learning_rate"
                " can mutate the value of the learning rate of the optimizer only when the"
                " LRScheduler of the optimizer is undefined."
            )
        self.lr = lr

    def set_lr_scale(self, args_lrscale: Any) -> None:
        """Removed in favour of set_lr_mult."""
        raise DeprecationWarning("set_lr_scale was removed\n  fix: set_lr_mult")

    def _from_symbol(self, key: str) -> dict:
        if not self.sym_info:
            return {}
        attrs, names = self.sym_info
        return {n: float(attrs[n][key]) for n in names if key in attrs.get(n, ())}

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """Factors on the learning rate, by name or index."""
        self.lr_mult = {**self._from_symbol("__lr_mult__"), **args_lr_mult}

    _DECAYED: tuple[str, ...] = ("_weight", "_gamma")

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """Factors on the weight decay, by name or index; names that do not end in _weight or _gamma
        have 0 unless given."""
        plain = {n: 0.0 for n in self.idx2name.values() if not n.endswith(self._DECAYED)}
        self.wd_mult = {**plain, **self._from_symbol("__wd_mult__"), **args_wd_mult}

    def _set_current_context(self, replica: int) -> None:
        """Each copy of the network counts its own updates, independent of its devices."""
        self._index_update_count = self._all_index_update_counts.setdefault(replica, {})

    def _update_count(self, index) -> None:
        counts, start, most = self._index_update_count, self.begin_num_update, self.num_update
        for i in index if isinstance(index, (list, tuple)) else (index,):
            counts[i] = n = counts.get(i, start) + 1
            if n > most:
                most = n
        self.num_update = most

    def _factors(self, indices, attribute: str, mults: dict) -> list[float]:
        params, out = self.param_dict, []
        if params:
            try:
                return [getattr(params[i], attribute) for i in indices]
            except KeyError:
                pass
        for i in indices:
            if i in params:
                out.append(getattr(params[i], attribute))
            elif i in mults:
                out.append(mults[i])
            else:
                out.append(mults.get(self.idx2name[i], 1.0) if i in self.idx2name else 1.0)
        return out

    def _get_lrs(self, indices) -> list[float]:
        lr = self.learning_rate
        return [lr * m for m in self._factors(indices, "lr_mult", self.lr_mult)]

    def _get_lr(self, index) -> float:
        return self._get_lrs([index])[0]

    def _get_wds(self, indices) -> list[float]:
        return [self.wd * m for m in self._factors(indices, "wd_mult", self.wd_mult)]

    def _get_wd(self, index) -> float:
        return self._get_wds([index])[0]

    def _start(self, index) -> tuple[float, float, int]:
        """Counts one update of a weight; returns its learning rate, its decay and its number of
        updates."""
        self._update_count(index)
        return self._get_lr(index), self._get_wd(index), self._index_update_count[index]

    def _numbers(self) -> dict[str, float]:
        """The scalar attributes of every update operator."""
        clip = self.clip_gradient
        return {"rescale_grad": self.rescale_grad, "clip_gradient": -1.0 if not clip else clip}

    def _known_plan(self, name: str, weights, grads, states) -> UpdatePlan | None:
        """The plan of an earlier step with these dense arrays."""
        plan = self._plans.get(id(weights[0])) if self._plans else None
        return plan if plan is not None and plan.fits(name, weights, grads, states) else None

    def _new_plan(self, name: str, groups, numbers, weights, grads, states) -> UpdatePlan:
        plan = UpdatePlan(name, groups, numbers, (weights, grads, states))
        if self._plans is not None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[id(weights[0])] = plan
        return plan

    def _clipped(self, grad: NDArray) -> NDArray:
        return (
            grad
            if self.clip_gradient is None
            else functions.clip(grad, -self.clip_gradient, self.clip_gradient)
        )

    # ---- state as plain data ---------------------------------------------------------------------

    not_state = ("param_dict", "sym_info", "idx2name", "_index_update_count", "_plans")

    def load_state_dict(self, state: dict) -> None:
        super().load_state_dict(state)
        self._index_update_count = self._all_index_update_counts.setdefault(0, {})

    def __getstate__(self):
        left_out = "param_dict", "_index_update_count", "_plans"
        return {k: v for k, v in self.__dict__.items() if k not in left_out}

    def __setstate__(self, state):
        self.__dict__.update(state, param_dict={})
        self._index_update_count = self._all_index_update_counts[0]


def apply_update(name: str, inputs: Any, targets: Any, **attrs: Any) -> None:
    """Runs an update operator: one call into the engine that writes `targets` (and the operator's
    states) in place."""
    op = lookup(name)
    if is_sparse(*inputs):
        invoke(op, inputs, attrs, targets[0])
        return
    full = {p.name: attrs.get(p.name, p.default) for p in op.params}
    plan = make_plan(op, full, [a._spec for a in inputs], inputs[0]._spec.device)
    call(
        plan.handle,
        plan.in_specs,
        plan.out_specs,
        inputs,
        targets,
        scalars_of(op, full),
        location.capture() if plan.can_fail else -1,
    )


def zeros_like(weight: NDArray, dtype: DType | None = None, lazy: bool = True) -> NDArray:
    """A zero state for a weight, with its storage type; dense if not lazy."""
    stype = weight.stype if lazy else "default"
    return functions.zeros(weight.shape, weight.context, dtype or weight.dtype, stype=stype)


def is_sparse(*arrays: NDArray) -> bool:
    """Is any of them stored sparse?"""
    return any([a._spec.stype != "default" for a in arrays])


def as_lists(index: Any, weight: Any, grad: Any, state: Any) -> Any:
    """Arguments of update as lists, whether one weight was given or several."""
    if isinstance(index, list):
        return index, weight, grad, state
    if isinstance(index, tuple):
        return list(index), list(weight), list(grad), list(state)
    return [index], [weight], [grad], [state]


register = Optimizer.register


def create(name: str, **kwargs: Any) -> Optimizer:
    """An optimizer by name (any case): create("sgd", learning_rate=0.1)."""
    return name if isinstance(name, Optimizer) else Optimizer.create_optimizer(name, **kwargs)
