"""Custom: operators whose rules and kernels are the user's Python. Each use has a record of its
own, made from an instance of its CustomOpProp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...engine import hooks
from ...engine.error import MXNetError, OperatorError, ShapeError
from ...engine.recent import Recent
from ..record import DTYPES, MAX_KEPT, Array, Operator, Param, Type, dtype_name, operator
from ..spec import NUMPY_DTYPES
from ..traits import LossLayer, PythonKernel, Specialised

PROPERTIES: dict[str, Any] = {}  # op_type -> what makes its CustomOpProp from texts
TOKEN = Type((1,), "int64")  # tells backward which instance ran forward


class Rules:
    """What one CustomOpProp says: names, shapes, dtypes, and what backward reads."""

    def __init__(self, op_type: str, prop: Any, reuse: bool):
        """reuse: may an instance whose backward has run serve again?"""
        self.op_type, self.prop = op_type, prop
        self.arguments = self._names("list_arguments")
        self.outputs = self._names("list_outputs")
        self.auxiliary = self._names("list_auxiliary_states")
        self.need_top_grad = bool(getattr(prop, "need_top_grad_", True))
        self._backward = Recent(MAX_KEPT)
        self.instances = hooks.get("custom instances")(self, reuse)

    def _names(self, method: str) -> tuple[str, ...]:
        names = getattr(self.prop, method)()
        if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) for n in names):
            raise OperatorError("Custom", f"{self._who(method)} must return names, got {names!r}")
        return tuple(names)

    def _who(self, method: str) -> str:
        return f"{type(self.prop).__name__}.{method} ({self.op_type})"

    def _three(self, method: str, given: list) -> tuple[list, list, list]:
        """What infer_shape or infer_type returns, checked: of arguments, outputs, auxiliary
        states."""
        found = getattr(self.prop, method)(given)
        groups = (self.arguments, self.outputs, self.auxiliary)
        if not isinstance(found, (list, tuple)) or len(found) not in (2, 3):
            raise OperatorError("Custom", f"{self._who(method)} must return 2 or 3 lists")
        parts = [list(p) for p in (*found, ())[:3]]
        for what, names, part in zip(("input", "output", "auxiliary state"), groups, parts):
            if len(part) != len(names):
                raise OperatorError(
                    "Custom",
                    f"{self._who(method)} must return {len(names)} entries, one for each {what}, "
                    f"got {len(part)}",
                )
        return parts[0], parts[1], parts[2]

    def types(self, ins: Sequence[Type | None]) -> tuple[list[Type], list[Type]]:
        """(types of inputs and auxiliary states, types of outputs)."""
        arguments = list(ins[: len(self.arguments)])
        first = next((t.dtype for t in ins if t is not None), "float32")
        shapes = self._three("infer_shape", [list(t.shape) if t else [] for t in arguments])
        dtypes = self._three("infer_type", [numpy_type(t.dtype if t else first) for t in arguments])
        groups = [
            [Type(tuple(int(n) for n in s), dtype_name(d)) for s, d in zip(part, kinds)]
            for part, kinds in zip(shapes, dtypes)
        ]
        return groups[0] + groups[2], groups[1]

    def infer(self, ins: Sequence[Type], **_: Any) -> list[Type]:
        inputs, outputs = self.types(ins)
        for name, t, want in zip((*self.arguments, *self.auxiliary), ins, inputs):
            if t.shape != want.shape:
                raise ShapeError(
                    "Custom",
                    f"{self.op_type}: {name} must have shape {want.shape}, as "
                    f"{type(self.prop).__name__}.infer_shape says, got {t.shape}",
                )
        return [*outputs, TOKEN]

    def fill(self, ins: Sequence[Type | None], **_: Any) -> list[Type | None]:
        inputs = self.types(ins)[0]
        # an unknown shape that comes back as it went is still unknown
        return [(want if want.shape else None) if t is None else t for t, want in zip(ins, inputs)]

    def grad(
        self,
        F: Any,
        dys: Sequence[Array],
        xs: Sequence[Array],
        ys: Sequence[Array],
        train: bool = True,
        **_: Any,
    ) -> list[Array | None]:
        n_in, n_out = len(self.arguments), len(self.outputs)
        ids = list(range(2 * n_out + n_in))
        groups = ids[:n_out], ids[n_out : n_out + n_in], ids[n_out + n_in :]
        needed = set(self.prop.declare_backward_dependency(*groups))
        arrays = [*dys[:n_out], *xs[:n_in], *ys[:n_out]]
        reads = [i for i in ids if i in needed]
        types = tuple(Type(tuple(a.shape), dtype_name(a.dtype)) for a in arrays)
        op = self._backward_operator(types, tuple(reads), bool(train))
        grads = F.apply(op, [*(arrays[i] for i in reads), *xs[n_in:], ys[n_out]], {})
        return [*(grads if isinstance(grads, list) else [grads]), *[None] * len(self.auxiliary)]

    def _backward_operator(self, types: tuple, reads: tuple, train: bool) -> Operator:
        """The operator that runs CustomOp.backward. types: of output gradients, inputs, outputs;
        reads: which of them it reads."""
        key = (types, reads, train)
        found = self._backward[key]
        if found is None:
            n_out, n_in = len(self.outputs), len(self.arguments)
            results = list(types[n_out : n_out + n_in])
            roles = ["ograd_" + n for n in self.outputs], self.arguments, self.outputs
            names = [f"{n}_{i}" for i, n in enumerate(n for role in roles for n in role)]

            def run(inputs, outputs, **_):
                self.instances.backward(inputs, outputs, types, reads, train)

            found = self._backward[key] = Operator(
                name="_backward_Custom",
                infer=lambda ins, **_: results,
                ref=_no_reference,
                traits=(PythonKernel(run),),
                inputs=(*(names[i] for i in reads), *self.auxiliary, "token"),
                n_outputs=n_in,
                mutates=self.auxiliary,
                random=True,
                doc=f"CustomOp.backward of {self.op_type}.",
            )
        return found


def numpy_type(name: str) -> Any:
    d = NUMPY_DTYPES[name]
    return d if d.names else d.type


def _no_reference(*_, **__):
    raise MXNetError("Custom: runs on arrays of the engine only")


def text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def custom_operator(given: dict[str, Any], graphs: Any = None, reuse: bool = True) -> Operator:
    """The record of one use. given: op_type and the parameters of its CustomOpProp. Raises
    MXNetError."""
    texts = {k: text(v) for k, v in given.items() if not (k.startswith("__") and k.endswith("__"))}
    op_type = texts.pop("op_type", None)
    if op_type is None:
        raise OperatorError("Custom", "parameter 'op_type' is required")
    make = PROPERTIES.get(op_type)
    if make is None:
        raise OperatorError(
            "Custom",
            f"op_type {op_type!r} is not registered, there are "
            f"{', '.join(sorted(PROPERTIES)) or 'none'}",
            fix=f"@mx.operator.register({op_type!r}) on its CustomOpProp, before it is used",
        )
    try:
        prop = make(**texts)
    except TypeError as error:
        raise OperatorError(
            "Custom", f"{op_type}: its CustomOpProp does not take {texts} ({error})"
        ) from error
    return operator_of(Rules(op_type, prop, reuse), ("op_type", *texts))


def operator_of(rules: Rules, params: Sequence[str] = (), name: str = "Custom") -> Operator:
    """The record of a CustomOpProp's operator."""

    def run(inputs, outputs, train=False, **_):
        rules.instances.forward(inputs, outputs, train)

    n_out = len(rules.outputs)
    return Operator(
        name=name,
        infer=rules.infer,
        fill=rules.fill,
        ref=_no_reference,
        traits=(PythonKernel(run), *([] if rules.need_top_grad else [LossLayer()])),
        grad=rules.grad,
        inputs=(*rules.arguments, *rules.auxiliary),
        params=tuple(Param(n, "str") for n in params),
        n_outputs=n_out,  # the token is hidden: MXNet does not count it
        output_names=rules.outputs if n_out > 1 or rules.outputs != ("output",) else (),
        mutates=rules.auxiliary,
        random=True,  # never left out, merged or run twice: it may have effects
        train_aware=True,
        doc=f"The custom operator {rules.op_type}.",
    )


def flag(t: Type) -> int:
    """MXNet's number of a dtype, which create_operator gets."""
    return DTYPES.index(t.dtype)


def _unspecific(*_, **__):
    raise OperatorError("Custom", "parameter 'op_type' is required")


def _without_code(*_, **__):
    raise OperatorError(
        "_CustomFunction",
        "an autograd.Function is not in the file, only its name",
        fix="mx.operator.CustomOp, registered before the file is loaded",
    )


operator(
    "_CustomFunction",
    infer=_without_code,
    ref=_without_code,
    inputs=("*data",),
    traits=(Specialised(_without_code),),
    doc="An autograd.Function inside a hybridized block. Source: MXNet 1.9.1 custom_function.cc.",
)
operator(
    "Custom",
    aliases=("_npi_Custom",),
    infer=_unspecific,
    ref=_unspecific,
    inputs=("*data",),
    params=(Param("op_type", "str", doc="the name given to mx.operator.register"),),
    traits=(Specialised(custom_operator),),
    doc="An operator written in Python, registered with mx.operator.register; further keywords are "
    "the parameters of its CustomOpProp, as text. Source: MXNet 1.9.1 custom.cc.",
)
