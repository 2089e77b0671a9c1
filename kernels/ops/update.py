"""Updates of optimizers: what they have in common, SGD, and updates of many weights in one call.

Each returns the new weight (write it with out=weight) and writes its states in place.
Numbers that change from step to step are dynamic parameters; a negative clip value means no
clipping.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ...engine.error import OperatorError, ShapeError
from ..record import REQUIRED, WEIGHTS, Array, Infer, Param, Ref, Sample, operator, sample, uniform
from ..shapes import must_be
from ..traits import WeightUpdate
from ..update_loops import rule

FUSED = 256  # weights of one multi-tensor call that may be written over themselves


def num(name: str, default: float | object = REQUIRED) -> Param:
    return Param(name, "float", default, dynamic=True)


LR, WD, RESCALE, CLIP = (
    num("lr"),
    num("wd", 0.0),
    num("rescale_grad", 1.0),
    num("clip_gradient", -1.0),
)
BETA1, BETA2 = num("beta1", 0.9), num("beta2", 0.999)
MOMENTUM, LAZY = num("momentum", 0.0), Param("lazy_update", "bool", True)
COMMON = (WD, RESCALE, CLIP)


def clip(xp: Any, g: Array, limit: float) -> Array:
    return xp.where(limit >= 0, xp.clip(g, -limit, limit), g)


def scaled_gradient(xp: Any, grad: Array, rescale_grad: float, clip_gradient: float) -> Array:
    return clip(xp, rescale_grad * grad, clip_gradient)


def check_same(name: str, inputs: Sequence[str], skip: Collection[str] = ()) -> Infer:
    """Inference: all inputs have the weight's shape, those of `skip` one element."""

    def infer(ins, **_):
        for t, n in zip(ins, inputs):
            if n in skip and any(length != 1 for length in t.shape):
                raise ShapeError(name, f"{n} must have one element, got shape {t.shape}")
            if t.shape != ins[0].shape and n not in skip:
                raise ShapeError(
                    name, f"{n} must have the weight's shape {ins[0].shape}, got {t.shape}"
                )
        return [ins[0]]

    return infer


def update(
    name: str,
    inputs: tuple[str, ...],
    params: tuple[Param, ...],
    ref: Ref,
    doc: str,
    mutates: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
    skip: Collection[str] = (),
    samples: tuple[Sample, ...] | None = None,
    by: str = "",
) -> None:
    """Registers an update: ref gives the new weight, then the new value of each mutated input.
    by: the rule of the loop; without it, and where all inputs are arrays like the weight, it is
    ref."""
    states = [
        uniform((3, 4), 0.5, 2) if i in ("n", "var", "history", "v", "d") else (3, 4)
        for i in inputs[2:]
    ]
    if name == "rmspropalex_update":
        states[1] = uniform((3, 4), -0.5, 0.5)
    given = {p.name: 0.1 for p in params if p.name in ("lr", "wd", "eta") and p.kind == "float"}
    more = (
        {"clip_gradient": 0.3, "rescale_grad": 0.5}
        if any(p.name == "rescale_grad" for p in params)
        else {}
    )
    given |= {p.name: 3 for p in params if p.name == "t"}
    operator(
        name,
        inputs=inputs,
        params=params,
        infer=check_same(name, inputs, skip),
        ref=ref,
        mutates=mutates,
        aliases=aliases,
        traits=(WeightUpdate(by or name, "weight32" in inputs),),
        inplace=((0, 0),),
        doc=doc,
        samples=samples
        or (
            sample((3, 4), (3, 4), *states, **given),
            sample((3, 4), (3, 4), *states, **given, **more),
        ),
    )
    if not by:
        rule(name, ref, len(inputs) - 2, [p.name for p in params if p.dynamic])


# Stochastic gradient descent: one weight


def sgd(
    xp: Any, w: Array, g: Array, lr: float, wd: float, rescale_grad: float, clip_gradient: float
) -> Array:
    return (1 - lr * wd) * w - lr * scaled_gradient(xp, g, rescale_grad, clip_gradient)


def sgd_mom(
    xp: Any,
    w: Array,
    g: Array,
    mom: Array,
    lr: float,
    wd: float,
    momentum: float,
    rescale_grad: float,
    clip_gradient: float,
) -> tuple[Array, Array]:
    mom = momentum * mom - lr * wd * w - lr * scaled_gradient(xp, g, rescale_grad, clip_gradient)
    return w + mom, mom


def _sgd_ref(xp, w, g, *, lr, wd, rescale_grad, clip_gradient, **_):
    return sgd(xp, w, g, lr, wd, rescale_grad, clip_gradient)


def _sgd_mom_ref(xp, w, g, mom, *, lr, wd, momentum, rescale_grad, clip_gradient, **_):
    return sgd_mom(xp, w, g, mom, lr, wd, momentum, rescale_grad, clip_gradient)


def _mp(ref):
    """The multi-precision form: the last input is the float32 weight, which is updated and rounded
    to the weight."""

    def mp_ref(xp, w, g, *rest, **attrs):
        *states, w32 = rest
        new = ref(xp, w32, g.astype(w32.dtype), *states, **attrs)
        new = new if isinstance(new, tuple) else (new,)
        return (new[0], *new[1:], new[0])

    return mp_ref


update(
    "sgd_update",
    ("weight", "grad"),
    (LR, *COMMON, LAZY),
    _sgd_ref,
    aliases=("_sparse_sgd_update",),
    doc="weight - lr * (clip(rescale_grad * grad) + wd * weight).",
)
update(
    "sgd_mom_update",
    ("weight", "grad", "mom"),
    (LR, MOMENTUM, *COMMON, LAZY),
    _sgd_mom_ref,
    mutates=("mom",),
    aliases=("_sparse_sgd_mom_update",),
    doc="mom = momentum * mom - lr * (clip(rescale_grad * grad) + wd * weight); weight + mom.",
)
update(
    "mp_sgd_update",
    ("weight", "grad", "weight32"),
    (LR, *COMMON, LAZY),
    _mp(_sgd_ref),
    mutates=("weight32",),
    doc="sgd_update of weight32, rounded to weight's dtype.",
    by="sgd_update",
)
update(
    "mp_sgd_mom_update",
    ("weight", "grad", "mom", "weight32"),
    (LR, MOMENTUM, *COMMON, LAZY),
    _mp(_sgd_mom_ref),
    mutates=("mom", "weight32"),
    doc="sgd_mom_update of weight32, rounded to weight's dtype.",
    by="sgd_mom_update",
)


def _nag_ref(xp, w, g, mom, *, lr, wd, momentum, rescale_grad, clip_gradient):
    step = lr * (scaled_gradient(xp, g, rescale_grad, clip_gradient) + wd * w)
    mom = momentum * mom - step
    return w + momentum * mom - step, mom


update(
    "nag_mom_update",
    ("weight", "grad", "mom"),
    (LR, MOMENTUM, *COMMON),
    _nag_ref,
    mutates=("mom",),
    doc="Nesterov's accelerated gradient.",
)
update(
    "mp_nag_mom_update",
    ("weight", "grad", "mom", "weight32"),
    (LR, MOMENTUM, *COMMON),
    _mp(_nag_ref),
    mutates=("mom", "weight32"),
    doc="nag_mom_update of weight32, rounded to weight's dtype.",
    by="nag_mom_update",
)


# Stochastic gradient descent: many weights


def _groups(arrays, size):
    return [arrays[i : i + size] for i in range(0, len(arrays), size)]


def multi(
    name: str,
    group: tuple[str, ...],
    mutated: Sequence[int],
    ref: Ref,
    params: tuple[Param, ...],
    doc: str,
    preloaded: bool = False,
    *,
    by: str,
) -> None:
    """Registers the update of `num_weights` weights: inputs are groups like (w, g, mom), of which
    `mutated` are written.

    by: the rule of the loop.
    preloaded: learning rates and weight decays are the last two inputs instead of attributes.
    """
    size, tail = len(group), 2 if preloaded else 0

    def check(n_inputs, num_weights):
        if n_inputs != size * num_weights + tail:
            raise OperatorError(
                name,
                f"needs {size} arrays ({', '.join(group)}) for each of {num_weights} weights"
                f"{', then lrs and wds' if preloaded else ''}, got {n_inputs} arrays",
                fix="set num_weights",
            )

    def infer(ins, num_weights, **attrs):
        check(len(ins), num_weights)
        for key in ("lrs", "wds"):
            if not preloaded and len(attrs[key]) != num_weights:
                raise OperatorError(
                    name, f"{key} must have num_weights={num_weights} numbers, got {attrs[key]}"
                )
        for i, types in enumerate(_groups(ins[: size * num_weights], size)):
            for t, n in zip(types, group):
                if t.shape != types[0].shape:
                    raise ShapeError(
                        name,
                        f"{n} {i} must have its weight's shape {types[0].shape}, got {t.shape}",
                    )
        if preloaded:
            for key, rates in zip(("lrs", "wds"), ins[-2:]):
                must_be(name, key, rates, (num_weights,))
        return [ins[i * size] for i in range(num_weights)]

    def run(xp, *arrays, num_weights, **attrs):
        if preloaded:
            attrs["lrs"], attrs["wds"] = arrays[-2], arrays[-1]
        lrs, wds = attrs.pop("lrs"), attrs.pop("wds")
        done = [
            ref(xp, *given, lr=lr, wd=wd, **attrs)
            for given, lr, wd in zip(_groups(arrays[: size * num_weights], size), lrs, wds)
        ]
        done = [d if isinstance(d, tuple) else (d,) for d in done]
        return (*(d[0] for d in done), *(v for d in done for v in d[1:]))

    own = (Param("lrs", "floats", dynamic=True), Param("wds", "floats", dynamic=True))
    numbers = {} if preloaded else {"lrs": (0.1, 0.2), "wds": (0.0, 0.1)}
    rates = (uniform((2,), 0.05, 0.2), uniform((2,), 0, 0.1)) if preloaded else ()
    given = [s for s in ((3, 4), (5,)) for _ in group]
    operator(
        name,
        inputs=("*data",),
        input_names=lambda num_weights, **_: (
            *(f"{what}_{i}" for i in range(num_weights) for what in group),
            *("lrs", "wds")[:tail],
        ),
        params=(
            *(() if preloaded else own),
            *params,
            Param("num_weights", "int", 1, limits=WEIGHTS),
        ),
        infer=infer,
        ref=run,
        n_outputs=lambda num_weights, **_: num_weights,
        mutates=lambda n_inputs, num_weights, **_: tuple(
            i * size + m for i in range(num_weights) for m in mutated
        ),
        traits=(WeightUpdate(by, "weight32" in group, preloaded),),
        inplace=tuple((i * size, i) for i in range(FUSED)),
        doc=doc,
        samples=(
            sample(*given, *rates, num_weights=2, **numbers),
            sample(*given, *rates, num_weights=2, clip_gradient=0.3, rescale_grad=0.5, **numbers),
        ),
    )


for _prefix, _before in (("", False), ("preloaded_", True)):
    _rates = "the arrays lrs and wds, the last two inputs" if _before else "lrs and wds"
    multi(
        f"{_prefix}multi_sgd_update",
        ("weight", "grad"),
        (),
        _sgd_ref,
        (RESCALE, CLIP),
        preloaded=_before,
        doc=f"sgd_update of many weights with {_rates}.",
        by="sgd_update",
    )
    multi(
        f"{_prefix}multi_sgd_mom_update",
        ("weight", "grad", "mom"),
        (2,),
        _sgd_mom_ref,
        (MOMENTUM, RESCALE, CLIP),
        preloaded=_before,
        doc=f"sgd_mom_update of many weights with {_rates}.",
        by="sgd_mom_update",
    )
    multi(
        f"{_prefix}multi_mp_sgd_update",
        ("weight", "grad", "weight32"),
        (2,),
        _mp(_sgd_ref),
        (RESCALE, CLIP),
        preloaded=_before,
        doc=f"mp_sgd_update of many weights with {_rates}.",
        by="sgd_update",
    )
    multi(
        f"{_prefix}multi_mp_sgd_mom_update",
        ("weight", "grad", "mom", "weight32"),
        (2, 3),
        _mp(_sgd_mom_ref),
        (MOMENTUM, RESCALE, CLIP),
        preloaded=_before,
        doc=f"mp_sgd_mom_update of many weights with {_rates}.",
        by="sgd_mom_update",
    )
