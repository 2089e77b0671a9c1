"""Entries of optimizer updates."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...engine import lib
from ..native import Native
from ..record import HALVES, NATIVE_FLOATS, REGISTRY
from ..update_loops import RULES, Rule, loop_name, rule_name
from .layout import code, cost
from .table import native

# parameters with a number for each weight -> the rule's name for it
LISTS = {"lrs": "lr", "learning_rates": "lr", "wds": "wd", "etas": "eta", "step_count": "t"}
LAMB = ("lamb_update_phase1", "lamb_again")


def _positions(op, attrs) -> dict[str, tuple[int, int]]:
    """Where the dynamic parameters stand among the scalars: (first, step from weight to weight)."""
    found, at = {}, 0
    for p in op.params:
        if p.dynamic:
            is_list = p.name in LISTS
            found[LISTS.get(p.name, p.name)] = (at, int(is_list))
            at += len(attrs[p.name]) if is_list else 1
    return found


def _numbers(rule: Rule, op, attrs) -> dict:
    """The fields of plk_update that say where the rule's numbers come from."""
    positions = _positions(op, attrs)
    preloaded = op.name.startswith("preloaded_")
    where, fixed = [], []
    for name in rule.numbers:
        fixed.append(float(attrs[name]) if name in attrs and name not in positions else 0.0)
        if name in positions:
            where.append(positions[name])
        elif preloaded and name in ("lr", "wd"):
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


def _fields(name: str, op, ins, outs, attrs) -> dict | None:
    """plk_update for a rule's name, or None where a type does not fit."""
    rule = RULES[name]
    n, wide = len(outs), "mp_" in op.name
    size, dtype = 2 + rule.states + wide, ins[0].dtype
    groups, after = [ins[k * size : (k + 1) * size] for k in range(n)], ins[n * size :]
    full = "float32" if wide else dtype
    if dtype not in (HALVES if wide else NATIVE_FLOATS):
        return None
    if any(t.dtype != dtype for g in groups for t in g[:2]) or n > lib.PLK_MAX_WEIGHTS:
        return None
    if any(t.dtype != full for g in groups for t in g[2:]) or _differ(after, "float32"):
        return None
    return {
        "loop": lib.plk_pointwise_find(loop_name(name).encode()),
        "n_weights": n,
        "n_states": rule.states,
        "dtype": code(dtype),
        "gradient": code(dtype),
        "wide": 0 if not wide else 1 if outs[0].dtype == dtype else 2,
        "n_after": len(after),
        "n": [prod(t.shape) for t in outs],
        **_numbers(rule, op, attrs),
    }


def _differ(types: Sequence, dtype: str) -> bool:
    return any(t.dtype != dtype for t in types)


def _steps(ins) -> int:
    return sum(prod(t.shape) for t in ins)


def update_entry(op, ins, outs, attrs):
    fields = _fields(rule_name(op.name), op, ins, outs, attrs)
    if fields is None:
        return None
    return Native("plk_update_run", ("plk_update", fields), cost(*ins, *outs, steps=_steps(ins)))


native(
    *sorted({op.name for op in REGISTRY.values() if rule_name(op.name)} - {"lamb_update_phase2"})
)(update_entry)


@native("_multi_lamb_update", "_multi_mp_lamb_update")
def multi_lamb_entry(op, ins, outs, attrs):
    first, again = LAMB
    direction = _fields(first, op, ins, outs, attrs)
    if direction is None or ins[0].dtype == "float64":
        return None
    positions = _positions(op, attrs)
    fields = {
        "direction": direction,
        "step": lib.plk_pointwise_find(loop_name(again).encode()),
        "lr_at": positions["lr"][0],
        "lower_at": positions["lower_bound"][0],
        "upper_at": positions["upper_bound"][0],
    }
    used = cost(*ins, *ins, *outs, steps=2 * _steps(ins))
    return Native("plk_lamb_run", ("plk_lamb", fields), used, can_fail=True)


@native("lamb_update_phase2", "mp_lamb_update_phase2")
def lamb_step_entry(op, ins, outs, attrs):
    wide, dtype = op.name.startswith("mp_"), ins[0].dtype
    if dtype not in (HALVES if wide else ("float32",)):
        return None
    if _differ(ins[1:], "float32"):
        return None
    loop = lib.plk_pointwise_find(loop_name("lamb_update_phase2").encode())
    positions = _positions(op, attrs)
    fields = {
        "direction": {
            "n_weights": 1,
            "dtype": code(dtype),
            "gradient": code("float32"),
            "wide": int(wide),
            "n": [prod(outs[0].shape)],
        },
        "step": loop,
        "lr_at": positions["lr"][0],
        "lower_at": positions["lower_bound"][0],
        "upper_at": positions["upper_bound"][0],
    }
    return Native("plk_lamb_step", ("plk_lamb", fields), cost(*ins, *outs))
