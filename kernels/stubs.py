"""Type stubs of the nd and sym namespaces and of the methods of NDArray and Symbol, made from the
operator records, and of the root, made from its tables of names."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Iterator
from pathlib import Path

from .record import REGISTRY, REQUIRED, Operator
from .traits import Specialised

KINDS = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "context": "str",
    "dtype": "Any",
    "shape": "int | Sequence[int]",
    "floats": "Sequence[float]",
}
HEADER = '''"""Made by kernels/stubs.py from the operator records; do not edit."""
from collections.abc import Sequence
from typing import Any

{imports}

def __getattr__(name: str) -> Any: ...

'''
NAMESPACES = {  # package: (array type, what its __init__ offers besides operators)
    "ndarray": ("NDArray", "from .creation import *\nfrom .ndarray import NDArray as NDArray"),
    "symbol": (
        "Symbol",
        "from .symbol import Group as Group\nfrom .symbol import Symbol as Symbol\n"
        "from .symbol import Variable as Variable\nfrom .symbol import load as load\n"
        "from .symbol import load_json as load_json\nfrom .symbol import var as var",
    ),
}
CLASSES = {  # package: (class, imports, base of the stub)
    "ndarray": (
        "NDArray",
        "from ..engine._array import Array\nfrom .ndarray import NDArray",
        "Array",
    ),
    "symbol": ("Symbol", "from .symbol import Symbol", "object"),
}
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
COMPARISONS = ("lt", "le", "gt", "ge")
PLAIN = {"int", "float", "bool", "str", "list", "None", "NDArray", "Symbol"}


def write(root: Path) -> None:
    """Writes __init__.pyi, ndarray/__init__.pyi, ndarray/_methods.pyi, and those of symbol/, when
    the package is built."""
    (root / "__init__.pyi").write_text(
        HEADER.format(imports=root_imports((root / "__init__.py").read_text()))
    )
    for package, (array, imports) in NAMESPACES.items():
        text = HEADER.format(imports=imports) + "".join(
            signature(op, name, array)
            for name, op in sorted(REGISTRY.items())
            if not name.startswith("_") and name.isidentifier() and not keyword.iskeyword(name)
        )
        (root / package / "__init__.pyi").write_text(text)
    for package in CLASSES:
        (root / package / "_methods.pyi").write_text(methods(root / package))


def methods(folder: Path) -> str:
    """The stub of a class Methods: what the class of a package gets after its definition."""
    array, imports, base = CLASSES[folder.name]
    sources = [ast.parse(path.read_text()) for path in sorted(folder.glob("*.py"))]
    own = {f.name for tree in sources for f in _body_of(tree, array)}
    found: dict[str, str] = {}
    for name in ("neg", "invert", "abs", "pos"):
        found[f"__{name}__"] = f"def __{name}__(self) -> {array}: ..."
    for name in OPERATORS:
        for form in ("", "r", *(["i"] if array == "NDArray" else [])):
            found[f"__{form}{name}__"] = f"def __{form}{name}__(self, other: Any) -> {array}: ..."
    for name in COMPARISONS:
        found[f"__{name}__"] = f"def __{name}__(self, other: Any) -> {array}: ..."
    for name in ("eq", "ne"):  # of object they take anything and return bool
        found[f"__{name}__"] = (
            f"def __{name}__(self, other: object) -> {array}: ...  # type: ignore[override]"
        )
    for name, op in sorted(REGISTRY.items()):
        first = op.inputs[:1] and not op.variadic
        if first and name[0].islower() and name.isidentifier() and not keyword.iskeyword(name):
            found[name] = signature(op, name, array, method=True).strip()
    for tree in sources:
        found |= dict(_attached(tree, array))
    lines = [f"    {text}" for name, text in found.items() if name not in own]
    return (
        HEADER.format(imports=imports).replace(
            "def __getattr__(name: str) -> Any: ...\n\n", f"class Methods({base}):\n"
        )
        + "\n".join(lines)
        + "\n"
    )


def _body_of(tree: ast.Module, name: str) -> list[ast.FunctionDef]:
    """The methods that a class defines in its body."""
    return [
        f
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == name
        for f in node.body
        if isinstance(f, ast.FunctionDef)
    ]


def _attached(tree: ast.Module, array: str) -> Iterator[tuple[str, str]]:
    """(name, stub) of the methods that a module adds to a class: by the decorator `method`, in a
    loop `for _method in (f, g)`, in a table _METHODS, or by setattr(NDArray, "x", f)."""
    functions = {f.name: f for f in tree.body if isinstance(f, ast.FunctionDef)}
    for f in functions.values():
        if any(isinstance(d, ast.Name) and d.id == "method" for d in f.decorator_list):
            yield f.name, _stub(f, f.name)
    for node in tree.body:
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            if isinstance(node.target, ast.Name) and node.target.id in ("_method", "_name"):
                for item in node.iter.elts:
                    if isinstance(item, ast.Name):
                        name = item.id.removesuffix("_") if item.id[-2:] != "__" else item.id
                        yield name, _stub(functions.get(item.id), name)
                    elif isinstance(item, ast.Constant) and array == "Symbol":
                        yield str(item.value), _stub(None, str(item.value))
        given: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value  # setattr(NDArray, "x", f)
            if ast.unparse(call.func) == "setattr" and ast.unparse(call.args[0]) == array:
                given.append((call.args[1], call.args[2]))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            if ast.unparse(node.targets[0]) == "_METHODS":
                given += [(k, v) for k, v in zip(node.value.keys, node.value.values) if k]
        for key, value in given:
            name = ast.literal_eval(key)
            if name not in ("__hash__", "__reduce__"):
                yield name, _assigned(name, value, functions)


def _assigned(name: str, value: ast.expr, functions: dict[str, ast.FunctionDef]) -> str:
    if isinstance(value, ast.Call) or isinstance(value, ast.Constant):  # property(...), None
        return f"{name}: Any"
    return _stub(functions.get(value.id) if isinstance(value, ast.Name) else None, name)


def _stub(function: ast.FunctionDef | None, name: str) -> str:
    """A method's line in a stub. Of its annotations those of plain types are kept."""
    if name in ("__float__", "__int__", "__index__", "__len__", "__bool__"):
        kind = {"__float__": "float", "__bool__": "bool"}.get(name, "int")
        return f"def {name}(self) -> {kind}: ..."
    if function is None:
        return f"def {name}(self, *args: Any, **kwargs: Any) -> Any: ..."
    arguments = function.args
    for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        a.annotation = None
    for star in (arguments.vararg, arguments.kwarg):
        if star is not None:
            star.annotation = None
    arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
    arguments.kw_defaults = [d and ast.Constant(...) for d in arguments.kw_defaults]
    returns = ast.unparse(function.returns) if function.returns is not None else "Any"
    returns = returns if returns in PLAIN else "Any"
    return f"def {name}({ast.unparse(arguments)}) -> {returns}: ..."


def root_imports(source: str) -> str:
    """Imports that say what the root's __getattr__ loads on first use; source: the text of the
    root's __init__.py."""
    tables = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("MODULES", "NAMES")
    }
    places = [(name, *path.rpartition(".")[::2]) for name, path in tables["MODULES"].items()]
    places += [(name, *place) for name, place in tables["NAMES"].items()]
    return "\n".join(
        [
            "__version__: str",
            *(f"from .{module} import {attribute} as {name}" for name, module, attribute in places),
        ]
    )


def signature(op: Operator, name: str, array: str, method: bool = False) -> str:
    """One function, or method, of a stub file."""
    if op.variadic:
        parts = [f"*{op.inputs[0][1:]}: {array}"]
    else:
        parts = [f"{i}: {array} | None = ..." for i in op.inputs]
    if method:
        parts[0] = "self"
    open_ended = op.has(Specialised) or any(keyword.iskeyword(p.name) for p in op.params)
    for p in op.params:
        if p.name in op.inputs or p.name == op.variadic_key or keyword.iskeyword(p.name):
            continue
        kind = "str | None" if isinstance(p.kind, tuple) else KINDS[p.kind.removesuffix("?")]
        if p.kind[-1] == "?" or p.default is None:
            kind = kind if "None" in kind or kind == "Any" else f"{kind} | None"
        parts.append(
            f"{p.name}: {kind} = ..."
            if p.default is not REQUIRED or not op.variadic
            else f"{p.name}: {kind}"
        )
    parts += [
        f"out: {array} | Sequence[{array}] | None = ...",
        "name: str | None = ...",
        "attr: dict[str, str] | None = ...",
        *(["ctx: Any = ..."] if array == "NDArray" and "ctx" not in op.param_index else []),
        *(["**kwargs: Any"] if open_ended else []),
    ]
    many = callable(op.n_outputs) or callable(op.n_visible) or (op.n_visible or op.n_outputs) != 1
    return f"def {name}({', '.join(parts)}) -> {'Any' if many else array}: ...\n"
