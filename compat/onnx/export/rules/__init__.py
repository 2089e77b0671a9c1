"""The rules, by family of operators; importing this fills the table (rule.RULES)."""

from . import (  # noqa: F401
    activations,
    attention,
    boxes,
    control,
    layers,
    matrices,
    moves,
    normal,
    numpy,
    pointwise,
    quantized,
    random,
    recurrent,
    reductions,
)
