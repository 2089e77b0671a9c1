"""Traits: facts that only few operators have, each a typed value in the field `traits` of a record.

A record has fields for what every operator has; the rest is a trait of one of these kinds.
`op.trait(Kind)` gives it or None, `op.has(Kind)` says whether there is one. Passes ask for traits
and never for names, so they serve a new operator that has the trait as they serve the old ones.
The operator reference lists the traits of each operator. docs/design/kernels.md says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

# ---- how an operator runs ------------------------------------------------------------------------


class Eager(NamedTuple):
    """What an eager call does instead, where the shape of a result is known only from values, or
    from `out`. `infer` may refuse, with a ShapeError; graphs that hold the operator run it eagerly.

    call: (call, inputs, out, **attrs) -> array(s), where call(name, *arrays, out=None, **attrs)
        applies an operator.
    """

    call: Callable


class Part(NamedTuple):
    """An eager call reads a part of its input's memory, as `_strided`: one plan for all places.

    of: (shape, **attrs) -> (sizes, steps, at). Raises ShapeError.
    """

    of: Callable


class Rematerializes(NamedTuple):
    """How output 0 is computed once more by an operator that draws random numbers or writes inputs.

    rule: (F, xs, ys, **attrs) -> output 0, from inputs that the operator does not write and its
        other outputs (ys[0] is None).
    """

    rule: Callable


class Collective(NamedTuple):
    """All ranks of a group compute it together: no kernel, but messages between programs. It has
    one input and one output.

    kind: the function of `dist` that pushes it.
    """

    kind: str


class Auxiliary(NamedTuple):
    """Inputs that are auxiliary states though the operator only reads them: of inference.

    inputs: their numbers.
    """

    inputs: tuple[int, ...]


class PythonKernel(NamedTuple):
    """A kernel in Python instead of `ref`.

    run: (inputs, outputs, **attrs): lists of (address, Spec); auxiliary inputs are written.
    """

    run: Callable


class OwnKernel(NamedTuple):
    """The kernel of a record of one use, which no table names.

    choose: (ins, outs, attrs) -> native.Native.
    """

    choose: Callable


class Lowered(NamedTuple):
    """A program runs another record. Its `grad` gets None for outputs that have no gradient.

    make: (are hidden outputs read?, tier) -> that record.
    """

    make: Callable


class Decomposition(NamedTuple):
    """The same computation in other operators, which run where these have kernels and it has none.

    rule: (F, *inputs, **attrs) -> list of all outputs, or None. Inputs of 16 bits arrive as
        float32.
    """

    rule: Callable[..., Sequence[Any] | None]


class Front(NamedTuple):
    """It only stands for other operators, which the types of its inputs decide: it has no kernel
    and no gradient of its own. Eager calls and programs see what it stands for.

    rule: (F, *inputs, **attrs) -> its output, or a list of all.
    """

    rule: Callable[..., Any]


class Specialised(NamedTuple):
    """Each use has a record of its own: user code decides on inputs and outputs.

    make: (attributes as text, subgraphs) -> that record.
    """

    make: Callable


class Subgraphs(NamedTuple):
    """The bodies of control flow. graphs: as files hold them. control: the Loop or Branch."""

    graphs: Sequence
    control: Any = None


class LossLayer(NamedTuple):
    """The gradient does not depend on that of the output.

    when: (**attrs) -> bool; None: always. scaled: the loss scale of mixed precision multiplies the
        parameter `grad_scale`.
    """

    when: Callable | None = None
    scaled: bool = False

    def holds(self, attrs: dict) -> bool:
        if self.when is None:
            return True
        return bool(self.when(**{k: v for k, v in attrs.items() if k != "train"}))


# ---- what an operator computes, element by element -----------------------------------------------


class LoopForm(NamedTuple):
    """A call is an expression of its inputs, as those of pointwise operators, for some attributes.

    find: (op, ins, out, attrs) -> loops.Form, or None. mixed: the inputs whose dtype may be another
        one, where no single loop is asked for.
    """

    find: Callable
    mixed: tuple[int, ...] = ()


# ---- what an operator computes, for identities ---------------------------------------------------


class Constant(NamedTuple):
    """All elements of its output are one number. value: None: it is the parameter `value`."""

    value: float | None = None


class Identity(NamedTuple):
    """Output 0 is input 0, where their types are equal.

    when: (**attrs) -> bool; None: always. passes: the gradient is the identity, too.
    """

    when: Callable | None = None
    passes: bool = True

    def holds(self, attrs: dict) -> bool:
        return self.when is None or bool(self.when(**attrs))


class Neutral(NamedTuple):
    """Operands that leave the other one as it is, bit for bit: of floats the sign of 0 counts. The
    right operand is input 1, or the parameter `scalar`."""

    right: float
    left: float | None = None


class Involution:
    """f(f(x)) is x."""


class Sum:
    """Output 0 is the sum of all inputs."""


class Cast:
    """The shape is its input's; the dtype does not depend on its input's."""


class PrecisionCast:
    """Mixed precision puts it in: no rule of precision applies to it, and files may leave it out.
    Each output is the input of the same number in another dtype."""


class Scale(NamedTuple):
    """Input 0 times the parameter `scalar`, or divided by it."""

    divides: bool = False

    def factor(self, attrs: dict) -> float | None:
        """None: a division by 0."""
        scalar = attrs["scalar"]
        if not self.divides:
            return scalar
        return 1 / scalar if scalar else None


class Select:
    """Input 1 where input 0 is not 0, else input 2."""


class Reduction(NamedTuple):
    """Over the parameters `axis` and `exclude`, with `keepdims`. kind: the name of the operator
    that computes the same: sum, mean, max, min, prod, ..."""

    kind: str


class WeightUpdate(NamedTuple):
    """Updates weights. The inputs of each are the weight, the gradient, the states of the rule and,
    if `wide`, the weight in float32.

    rule: its name in update_loops.RULES; "lamb": several. preloaded: the last two inputs are the
        learning rates and the weight decays of all weights.
    """

    rule: str
    wide: bool = False
    preloaded: bool = False


# ---- operators that only move elements -----------------------------------------------------------


class SameMemory:
    """Output 0 is the bytes of input 0 under another shape."""


class DeviceCopy:
    """Output 0 is input 0, which may be on another device."""


class Join(NamedTuple):
    """All inputs, one after the other along an axis of output 0. axis: the name of the parameter.
    stacks: that axis is a new one."""

    axis: str
    stacks: bool = False


class Permutation(NamedTuple):
    """Another order of axes. axes: (number of axes, **attrs) -> for each axis the input's."""

    axes: Callable


class Broadcast:
    """Input 0 with elements repeated along axes of size 1 and along new first ones."""


class Section(NamedTuple):
    """A range of one axis.

    of: (shape, number of the output, **attrs) -> (axis, first, how many, is the axis dropped?).
    """

    of: Callable


class Strided:
    """What lies at the parameters `at`, `sizes` and `steps` of input 0's memory."""


# ---- gradients that have few rows ----------------------------------------------------------------


class RowScatter(NamedTuple):
    """Rows of input 0, added up at the row numbers of input 1 in zeros.

    when: (**attrs) -> bool.
    """

    when: Callable[..., bool]


class RowGradient(NamedTuple):
    """The gradient of input 1 is row_sparse where arrays have storage types.

    when: (storage type of input 0, **attrs) -> bool.
    """

    when: Callable[..., bool]


# ---- operators that are fused with their neighbours ----------------------------------------------


class Matmul(NamedTuple):
    """Output 0 is the matrix product of inputs 0 and 1.

    transposes: (**attrs) -> (is input 0 transposed?, is input 1?). stacked: all axes but the last
    two count matrices. flattens: input 0 has as many rows as the output without its last axis.
    bias: (**attrs) -> is input 2 added to each row? None: it never is.
    """

    transposes: Callable
    stacked: bool = False
    flattens: bool = False
    bias: Callable | None = None


class Heads:
    """A product of attention on interleaved heads; its decomposition is a stacked product of
    views."""


class Softmax:
    """Along the parameter `axis`, of input 0 / `temperature`; with `use_length` of the first
    elements, which input 1 counts."""


class Dropout:
    """Zeroes elements with probability `p`, those along `axes` together."""


class Convolution:
    """Of inputs 0 and 1, plus input 2 unless `no_bias`: parameters kernel, stride, dilate, pad,
    num_filter, num_group, layout."""


class BatchNorm:
    """Inputs data, gamma, beta and the moving mean and variance; outputs the result and the
    statistics: parameters axis, eps, momentum, fix_gamma, use_global_stats."""


class Activates(NamedTuple):
    """The operator is an activation of activations.py, for some of its attributes.

    of: (**attrs) -> its name there and its numbers low and high, or None.
    """

    of: Callable


class Slope(NamedTuple):
    """Input 0 times the slope at input 1 of an activation. of: its name in activations.py."""

    of: str


class RowForm(NamedTuple):
    """The operator along the last axis in pointwise operators and reductions, for groups of rows.

    rule: (F, *inputs, **attrs) -> all outputs; inputs of 16 bits arrive as float32. when: (**attrs)
    -> is the rule for these? None: for all. from_size: elements; of fewer its own kernel is faster.
    """

    rule: Callable
    when: Callable | None = None
    from_size: int = 0


def kind_text(trait: object) -> str:
    """A trait as the operator reference lists it: matmul, reduction (sum), constant (0)."""
    numbers = [v for v in trait if isinstance(v, (str, float))] if isinstance(trait, tuple) else []
    shown = ", ".join(v if isinstance(v, str) else f"{v:g}" for v in numbers)
    name = "".join(f" {c.lower()}" if c.isupper() else c for c in type(trait).__name__).strip()
    return f"{name} ({shown})" if shown else name
