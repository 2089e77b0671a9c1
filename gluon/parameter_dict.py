"""ParameterDict: parameters by full name, in order; created, shared, initialized, saved and loaded
together."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from os import PathLike
from typing import Any

from ..engine import Context
from ..engine.error import InvalidType, MissingKey, close_matches
from ..kernels.record import dtype_name
from ..ndarray import NDArray, functions, serialization
from ..training import initializer
from . import shard
from .parameter import Constant, Parameter, ParameterError


class ParameterDict:
    """An ordered dict of Parameters whose names start with `prefix`. shared: a ParameterDict that
    `get` searches before it creates a parameter."""

    def __init__(self, prefix: str = "", shared: Any = None):
        self._prefix, self._shared = prefix, shared
        self._params: OrderedDict[str, Parameter] = OrderedDict()

    def __repr__(self):
        lines = "\n".join(f"  {p}" for p in self.values())
        return f"{self._prefix + ' ' if self._prefix else ''}(\n{lines}\n)"

    def __getitem__(self, key) -> Parameter:
        return self._params[key]

    def __iter__(self):
        return iter(self._params)

    def __len__(self):
        return len(self._params)

    def __contains__(self, key):
        return key in self._params

    def items(self) -> Any:
        return self._params.items()

    def keys(self) -> Any:
        return self._params.keys()

    def values(self) -> Any:
        return self._params.values()

    @property
    def prefix(self) -> str:
        return self._prefix

    # ---- making ----------------------------------------------------------------------------------

    def _find(self, name) -> Parameter | None:
        if name in self._params:
            return self._params[name]
        if self._shared is not None and name in self._shared._params:
            self._params[name] = self._shared._params[name]
            return self._params[name]
        return None

    def get(self, name: str, **kwargs: Any) -> Parameter:
        """The parameter `prefix + name`, made with kwargs when it does not exist.

        Raises ParameterError when it exists with other attributes; unknown dimensions are
        completed.
        """
        name = self._prefix + name
        found = self._find(name)
        if found is None:
            self._params[name] = made = Parameter(name, **kwargs)
            return made
        for key, value in kwargs.items():
            known = getattr(found, key, None)
            if known is None:
                setattr(found, key, value)
            elif key == "shape" and value is not None:
                self._merge_shape(found, (value,) if isinstance(value, int) else tuple(value))
            elif key == "dtype" and dtype_name(value) == dtype_name(known):
                continue
            elif value is not None and value != known:
                raise _conflict(name, key, value, known)
        return found

    @staticmethod
    def _merge_shape(found: Parameter, shape) -> None:
        known = found.shape
        assert known is not None  # `get` completes unknown shapes
        if len(known) != len(shape) or any(
            a > 0 and b > 0 and a != b for a, b in zip(known, shape)
        ):
            raise _conflict(found.name, "shape", shape, known)
        found._shape = tuple(a if a > 0 else b for a, b in zip(known, shape))

    def get_constant(self, name: str, value: Any = None) -> Constant:
        """The Constant `prefix + name`, made from value when it does not exist."""
        name = self._prefix + name
        found = self._find(name)
        if found is None:
            if value is None:
                raise MissingKey(
                    f"No constant named '{name}'. Please specify value if you want to create a new "
                    "constant."
                )
            self._params[name] = made = Constant(name, value)
            return made
        if not isinstance(found, Constant):
            raise ParameterError(f"Parameter '{name}' already exists but it is not a constant.")
        if value is not None:
            value = value if isinstance(value, NDArray) else functions.array(value)
            if value.shape != found.shape or (value.asnumpy() != found.value.asnumpy()).any():
                raise ParameterError(
                    f"Constant '{name}' already exists but its value doesn't match new value"
                )
        return found

    def update(self, other: ParameterDict | dict[str, Parameter]) -> None:
        """Adds the parameters of another dict or ParameterDict. Raises ParameterError for
        different ones of the same name."""
        for name, parameter in other.items():
            if self._params.get(name, parameter) is not parameter:
                raise ParameterError(
                    "Cannot update self with other because they have different Parameters with the "
                    f"same name '{name}'"
                )
        self._params.update(other)

    # ---- all of them -----------------------------------------------------------------------------

    def initialize(
        self,
        init: Any = None,
        ctx: Context | Sequence[Context] | None = None,
        verbose: bool = False,
        force_reinit: bool = False,
    ) -> None:
        """Initializes every parameter; see Parameter.initialize."""
        init = initializer.Uniform() if init is None else initializer.create(init)
        if verbose:
            init.set_verbosity(verbose=verbose)
        for parameter in self.values():
            parameter.initialize(None, ctx, init, force_reinit=force_reinit)

    def zero_grad(self) -> None:
        """Sets every gradient to zero."""
        for parameter in self.values():
            parameter.zero_grad()

    def reset_ctx(self, ctx: Context | Sequence[Context]) -> None:
        """Moves every parameter to other devices."""
        for parameter in self.values():
            parameter.reset_ctx(ctx)

    def list_ctx(self) -> list[Any]:
        """The devices that parameters are on."""
        found = {c: None for p in self.values() for c in p.list_ctx()}
        return list(found)

    def setattr(self, name: str, value: Any) -> None:
        """Sets an attribute of every parameter: `setattr('grad_req', 'null')`."""
        for parameter in self.values():
            setattr(parameter, name, value)

    # ---- files -----------------------------------------------------------------------------------

    def save(self, filename: str | PathLike[str], strip_prefix: str = "") -> None:
        """Writes a .params file with full names, without strip_prefix."""
        arrays = {}
        for name, parameter in self.items():
            if not name.startswith(strip_prefix):
                raise ParameterError(
                    f"Prefix '{strip_prefix}' is to be striped before saving, but Parameter's name "
                    f"'{name}' does not start with '{strip_prefix}'\n  fix: save(filename)"
                )
            arrays[name[len(strip_prefix) :]] = (
                parameter._reduce() if parameter._data is not None else parameter.data()
            )
        shard.write(self.values(), lambda: serialization.save(filename, arrays))

    def load(
        self,
        filename: str | PathLike[str],
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Reads a .params file. restore_prefix: put before each of its names.

        Raises ParameterError with the differing and the nearest names when file and dict do not
        match.
        """
        for name in self.keys():
            if not name.startswith(restore_prefix):
                raise ParameterError(
                    f"restore_prefix is '{restore_prefix}' but Parameters name '{name}' does not"
                    f" start with '{restore_prefix}'"
                )
        self.load_dict(
            serialization.load(filename),
            ctx,
            allow_missing,
            ignore_extra,
            restore_prefix,
            filename,
            cast_dtype,
            dtype_source,
        )

    def load_dict(
        self,
        param_dict: Any,
        ctx: Context | Sequence[Context] | None = None,
        allow_missing: bool = False,
        ignore_extra: bool = False,
        restore_prefix: str = "",
        filename: str | PathLike[str] | None = None,
        cast_dtype: bool = False,
        dtype_source: str = "current",
    ) -> None:
        """Takes values from a dict of arrays; `arg:` and `aux:` before names are dropped. See
        load."""
        where = f"file '{filename}'" if filename else "param_dict"
        if not isinstance(param_dict, dict):
            raise InvalidType(
                f"{where} must hold arrays by name, got {type(param_dict).__name__}"
                "\n  fix: write it with save_parameters or export"
            )
        given = {restore_prefix + re.sub("^(arg|aux):", "", k): v for k, v in param_dict.items()}
        check_names(self.keys(), given, where, allow_missing, ignore_extra)
        for name, value in given.items():  # nothing is written unless everything matches
            if name in self._params:
                self._params[name]._check_load(value, cast_dtype)
        for name, value in given.items():
            if name in self._params:
                self._params[name]._load_init(
                    value, ctx, cast_dtype=cast_dtype, dtype_source=dtype_source
                )


def check_names(
    wanted: Any, given: Any, where: str, allow_missing: bool, ignore_extra: bool
) -> None:
    """Raises ParameterError with a diff of names and the nearest ones when a file does not contain
    the wanted names."""
    missing = [] if allow_missing else [n for n in wanted if n not in given]
    extra = [] if ignore_extra else [n for n in given if n not in wanted]
    if not missing and not extra:
        return
    spare = [n for n in given if n not in wanted]
    lines = []
    for name in missing[:20]:
        near = close_matches(name, spare, 1, 0.5)
        lines.append(f"    - {name}" + (f"   (nearest in the file: {near[0]})" if near else ""))
    lines += [f"    ... {len(missing) - 20} more"] * (len(missing) > 20)
    free = [n for n in wanted if n not in given]
    for name in extra[:20]:
        near = close_matches(name, free, 1, 0.5)
        lines.append(f"    + {name}" + (f"   (nearest in the block: {near[0]})" if near else ""))
    lines += [f"    ... {len(extra) - 20} more"] * (len(extra) > 20)
    said = [f"Parameter '{missing[0]}' is missing in {where}"] if missing else []
    said += (
        [f"Parameter '{extra[0]}' loaded from {where} is not present in the block"] if extra else []
    )
    fixes = (["allow_missing=True"] if missing else []) + (["ignore_extra=True"] if extra else [])
    raise ParameterError(
        f"{'; '.join(said)} ({len(missing)} missing, {len(extra)} unknown of"
        f" {len(list(wanted))}):\n"
        + "\n".join(lines)
        + f"\n  fix: load the file that belongs to this network, or pass {' and '.join(fixes)}"
    )


def _conflict(name, key, value, known):
    return ParameterError(
        f"Cannot retrieve Parameter '{name}' because desired attribute does not match with stored "
        f"for attribute '{key}': desired '{value}' vs stored '{known}'."
    )


__all__ = ["ParameterDict", "check_names"]
