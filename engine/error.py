"""Errors in plait's form: the rule with names and values, where, how to fix."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from . import hooks


class MXNetError(RuntimeError):
    """Base of every error that plait raises; the name scripts written for MXNet expect."""

    def __reduce__(self):
        """As pickle asks. Without it an error whose class takes other arguments than a text would
        hang a multiprocessing.Pool, which cannot read what its worker sent."""
        kind = type(self)
        original = next((k for k, made in _types.items() if made is kind), None)
        return _rebuilt, (original or kind, original is not None, self.args, dict(vars(self)))


def _rebuilt(kind: type, deferred: bool, args: tuple, state: dict) -> MXNetError:
    """The error that __reduce__ took apart."""
    made = raisable(kind) if deferred else kind
    # not by made(*args), whose arguments may be others; of the builtin bases one has its layout
    bases: list[Any] = [b for b in made.__mro__ if b.__module__ == "builtins"]
    for base in bases:
        with contextlib.suppress(TypeError):
            error = base.__new__(made)
            break
    error.args = args
    error.__dict__.update(state)
    return error


def compose(rule: str, at: str | None = None, fix: str | None = None) -> str:
    """The text of an error: the rule that is broken with its values, where, how to mend it."""
    return rule + (f"\n  at: {at}" if at else "") + (f"\n  fix: {fix}" if fix else "")


def close_matches(name: str, known: Iterable[str], n: int = 1, cutoff: float = 0.6) -> list[str]:
    """At most n of the known names that `name` may be a typing error of, in whatever case, the
    likeliest first."""
    import difflib  # here: only errors need it

    by_lower = {k.lower(): k for k in sorted(known)}  # of relu and ReLU: relu
    return [by_lower[k] for k in difflib.get_close_matches(name.lower(), by_lower, n, cutoff)]


def did_you_mean(name: str, known: Iterable[str], n: int = 1) -> str | None:
    """The text of a `fix:` that names at most n names like `name`; None where there is none."""
    near = [repr(k) for k in close_matches(name, known, n)]
    return f"did you mean {' or '.join(near)}?" if near else None


class InvalidValue(MXNetError, ValueError, AssertionError):
    """An argument of the right type whose value breaks a rule; most such rules MXNet asserts."""


class InvalidType(MXNetError, TypeError):
    """An argument of a type that is not understood."""


class MissingPackage(MXNetError, ImportError):
    """A package that is needed for this, and not installed."""


def shown(value: Any) -> str:
    """A value in an error's text, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def parse_json(text: str | bytes, what: str) -> Any:
    """The value of a JSON text from a file or a user. Raises InvalidValue, which names `what`,
    where the text is broken or nested too deeply."""
    import json  # here: not every program reads any

    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{what} is broken: {error}") from None


class InvalidIndex(MXNetError, IndexError):
    """An index outside its range."""


class IndexOutOfRange(InvalidIndex, ValueError):
    """A value in an array of indices that is outside what it indexes; NumPy's and MXNet's is an
    IndexError, and a broken rule of an operator is a ValueError."""


class MissingName(MXNetError, AttributeError):
    """A function or attribute that does not exist.

    Its argument is the text, or a function that composes it when it is read: `hasattr` and
    `from package import module` raise such errors and read none.
    """

    def _composed(self) -> None:
        if self.args and callable(self.args[0]):
            self.args = (self.args[0](),)

    def __str__(self):
        self._composed()
        return super().__str__()

    def __repr__(self):
        self._composed()
        return super().__repr__()

    def __reduce__(self):
        self._composed()
        return super().__reduce__()


class MissingKey(MXNetError, KeyError):
    """A key that is not there."""

    __str__ = MXNetError.__str__  # a KeyError shows its text quoted


class MissingMethod(MXNetError, NotImplementedError):
    """A method that the user's subclass must define."""


class OutOfMemory(MXNetError, MemoryError):
    """More memory than there is; nothing was allocated, and work may go on."""


class DeadlineExceeded(MXNetError, TimeoutError):
    """An operation in flight was not done at its deadline, and was given up."""

    __str__ = MXNetError.__str__  # an OSError shows its errno


class OperatorError(MXNetError, ValueError):
    """A rule of an operator is broken: shapes, attributes, number of inputs.

    failed: in a graph, the node that broke it and what was known of the values' shapes, for `plot`;
    not pickled.
    """

    failed: tuple[Any, Any] | None = None

    def __init__(self, operator: str, rule: str, fix: str | None = None, at: str | None = None):
        super().__init__(compose(f"{operator}: {rule}", at, fix))
        self.operator, self.rule, self.fix, self.at = operator, rule, fix, at

    def __reduce__(self):
        rebuild, (kind, deferred, args, state) = super().__reduce__()
        state.pop("failed", None)
        return rebuild, (kind, deferred, args, state)

    def plot(self) -> Any:
        """A drawing of the failing node, red, and the nodes before it; see mx.viz.plot_error.
        Raises ValueError for an error outside a graph."""
        return hooks.get("drawing of an error")(self)

    def locate(self, at: str) -> None:
        """Says where it happened, unless it is known already."""
        if self.at is None:
            self.at = at
            self.args = (compose(f"{self.operator}: {self.rule}", at, self.fix),)


class ShapeError(OperatorError):
    """Shapes that do not fit together."""


class DynamicShape(ShapeError):
    """A shape that depends on values: graphs that have one run operator by operator."""


class DTypeError(OperatorError, TypeError):
    """Dtypes that do not fit together."""


class DeviceError(InvalidValue):
    """A device that does not exist here, or two devices mixed in one operation."""


class DeferredError(MXNetError):
    """An operation failed on a lane; raised at the wait, with the line that pushed it."""


_types: dict[type, type] = {}


def _text(self) -> str:
    return self.args[0]


def _init(self, text: str):
    RuntimeError.__init__(self, text)


def raisable(kind: type[BaseException]) -> type[MXNetError]:
    """A DeferredError that is also a `kind`, where Python can build that; made from one text."""
    if issubclass(kind, DeferredError):  # one that a wait inside the operation raised
        return kind
    made = _types.get(kind)
    if made is None:
        body = {
            "__init__": _init,
            "__str__": _text,
            "__module__": __name__,
            "__doc__": kind.__doc__,
        }
        try:
            made = (
                type(kind.__name__, (DeferredError, kind), body)
                if issubclass(kind, Exception)
                else DeferredError
            )
            made("")
        except TypeError:  # two memory layouts: OSError, StopIteration, ...
            made = DeferredError
        _types[kind] = made
    return made
