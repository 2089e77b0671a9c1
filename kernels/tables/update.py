"""Optimizer updates, and operators over many arrays."""

from __future__ import annotations

from math import prod

from ...engine import lib
from .. import cuda
from ..cpu.layout import code, cost
from ..native import Native
from ..record import HALVES, NATIVE_FLOATS, REGISTRY, Attrs, Operator, Types
from ..traits import WeightUpdate
from ..update_loops import RULES, Update, loop_name, scalars_of, update_of
from . import on_cpu, on_cuda

LAMB = ("lamb_update_phase1", "lamb_rematerialized")
STEPS_OF_LAMB = (*LAMB, "lamb_update_phase2")  # their own launches
BOUNDS = ("lower_bound", "upper_bound")


def _of(rules) -> list[str]:
    """Names of the operators with one of these rules."""
    found = {op.name: op.trait(WeightUpdate) for op in REGISTRY.values()}
    return sorted(name for name, trait in found.items() if trait and trait.rule in rules)


def _usable(call: Update, ins) -> bool:
    """Do kernels take these dtypes: one of weights and gradients, and of the other arrays the same,
    or float32 beside 16-bit floats?"""
    dtype = ins[0].dtype
    full = "float32" if call.wide else dtype
    each = [ins[k * call.size : (k + 1) * call.size] for k in range(call.n)]
    return (
        dtype in (HALVES if call.wide else NATIVE_FLOATS)
        and all(_are(types[:2], dtype) and _are(types[2:], full) for types in each)
        and _are(call.after, "float32")
    )


def _are(types, dtype: str) -> bool:
    return all(t.dtype == dtype for t in types)


# ---- CPU -----------------------------------------------------------------------------------------


def _numbers(call: Update, attrs) -> dict:
    """The fields of plk_update that say where the rule's parameters come from."""
    where, fixed = [], []
    for name in RULES[call.rule].numbers:
        scalars = call.numbers.get(name)
        fixed.append(float(attrs[name]) if name in attrs and scalars is None else 0.0)
        if scalars is not None:
            where.append((scalars[0], int(len(scalars) > 1)))
        elif call.preloaded and name in ("lr", "wd"):
            where.append((lib.PLK_SCALAR_LRS if name == "lr" else lib.PLK_SCALAR_WDS, 0))
        elif name in attrs:
            where.append((lib.PLK_SCALAR_FIXED, 0))
        else:
            where.append((lib.PLK_SCALAR_SCALE, 0))
    return {
        "n_scalars": len(where),
        "at": [at for at, _ in where],
        "step": [step for _, step in where],
        "fixed": fixed,
    }


def _fields(call: Update, ins, outs, attrs) -> dict | None:
    """plk_update, or None where a type does not fit."""
    if not _usable(call, ins) or call.n > lib.PLK_MAX_WEIGHTS:
        return None
    dtype = ins[0].dtype
    return {
        "loop": lib.plk_pointwise_find(loop_name(call.rule).encode()),
        "n_weights": call.n,
        "n_states": call.states,
        "dtype": code(dtype),
        "gradient": code(dtype),
        "wide": 0 if not call.wide else 1 if outs[0].dtype == dtype else 2,
        "n_after": len(call.after),
        "n": [prod(t.shape) for t in outs],
        **_numbers(call, attrs),
    }


def _steps(ins) -> int:
    return sum(prod(t.shape) for t in ins)


@on_cpu(*_of(RULES.keys() - {"lamb_update_phase2"}))
def update_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    fields = _fields(update_of(op, ins, outs, attrs), ins, outs, attrs)
    if fields is None:
        return None
    return Native("plk_update_run", ("plk_update", fields), cost(*ins, *outs, steps=_steps(ins)))


def _lamb(numbers, direction: dict, step: str) -> tuple[str, dict]:
    """The struct of both steps of LAMB."""
    low, high = (numbers[k][0] for k in BOUNDS)
    places = {"lr_at": numbers["lr"][0], "lower_at": low, "upper_at": high}
    loop = lib.plk_pointwise_find(loop_name(step).encode())
    return "plk_lamb", {"direction": direction, "step": loop, **places}


@on_cpu("_multi_lamb_update", "_multi_mp_lamb_update")
def multi_lamb_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = update_of(op, ins, outs, attrs, LAMB[0])
    direction = _fields(call, ins, outs, attrs)
    if direction is None or ins[0].dtype == "float64":
        return None
    used = cost(*ins, *ins, *outs, steps=2 * _steps(ins))
    return Native("plk_lamb_run", _lamb(call.numbers, direction, LAMB[1]), used, can_fail=True)


def _lamb_step(op, ins) -> tuple[bool, bool]:
    """(whether there is a float32 master weight, whether kernels take these types)"""
    wide, dtype = op.trait(WeightUpdate).wide, ins[0].dtype
    return wide, dtype in (HALVES if wide else ("float32",)) and _are(ins[1:], "float32")


@on_cpu("lamb_update_phase2", "mp_lamb_update_phase2")
def lamb_step_cpu(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    wide, serves = _lamb_step(op, ins)
    if not serves:
        return None
    direction = {
        "n_weights": 1,
        "dtype": code(ins[0].dtype),
        "gradient": code("float32"),
        "wide": int(wide),
        "n": [prod(outs[0].shape)],
    }
    params = _lamb(scalars_of(op, attrs), direction, "lamb_update_phase2")
    return Native("plk_lamb_step", params, cost(*ins, *outs))


# ---- CUDA ----------------------------------------------------------------------------------------


@on_cuda(*_of(RULES.keys() - set(STEPS_OF_LAMB)))
def update_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    call = update_of(op, ins, outs, attrs)
    if not _usable(call, ins) or not _are(outs, ins[0].dtype):
        return None
    return cuda.update_plan.update(call, ins, outs)


@on_cuda("lamb_update_phase1")
def lamb_direction_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    dtype, numbers = outs[0].dtype, scalars_of(op, attrs)
    if dtype not in NATIVE_FLOATS or not _are(ins, dtype):
        return None
    given = (op.name, numbers, attrs["bias_correction"], dtype)
    directions = cuda.update_plan.lamb_directions
    return cuda.launches(*directions(*given, [(0, 1, 2, 3)], [cuda.Buffer(4)], ins))


@on_cuda("lamb_update_phase2", "mp_lamb_update_phase2")
def lamb_step_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    wide, serves = _lamb_step(op, ins)
    if not serves or outs[0].dtype != ins[0].dtype:
        return None
    return cuda.update_plan.lamb_step(scalars_of(op, attrs), wide, ins, outs)


@on_cuda("_multi_lamb_update")
def multi_lamb_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    if not _are((*ins, *outs), "float32"):
        return None
    given = (LAMB[0], scalars_of(op, attrs), attrs["bias_correction"])
    return cuda.update_plan.lamb(*given, ins, outs)


@on_cuda("multi_sum_sq")
def multi_sum_sq_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return cuda.update_plan.sums_of_squares(ins)


@on_cuda("all_finite", "multi_all_finite")
def all_finite_cuda(op: Operator, ins: Types, outs: Types, attrs: Attrs) -> Native | None:
    return cuda.update_plan.all_finite(ins)
