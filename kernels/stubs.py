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
    "context": "Context | str",
    "dtype": "DType",
    "shape": "int | Sequence[int]",
    "floats": "Sequence[float]",
}
HEADER = '''"""Made by kernels/stubs.py from the operator records; do not edit."""
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

{imports}

'''
ARRAYS = {"ndarray": "NDArray", "symbol": "Symbol"}  # package: type of its inputs and outputs
IMPORTS = {
    "ndarray": """from ..engine import Context
from ..engine._array import Array
from ..kernels.spec import DType
from .ndarray import NDArray""",
    "symbol": """from ..engine import Context
from ..kernels.spec import DType
from .symbol import Symbol""",
}
# namespace (its functions are in the stub _NAME_operators): prefixes of its operators' names
NAMESPACES = {
    "contrib": ("_contrib_",),
    "image": ("_image_",),
    "linalg": ("_linalg_", "linalg_"),
    "random": ("_random_",),
    "sparse": ("_sparse_",),
}
OTHERS = {"gs_retain": "_sparse_retain"}  # functions of nd.sparse with a name of their own
BASES = {  # package: base of the stub of its class's methods
    "ndarray": "Array",
    "symbol": "object",
}
OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
COMPARISONS = ("lt", "le", "gt", "ge")
KNOWN = {  # names that annotations in stubs may use
    *(
        "Any",
        "Callable",
        "Context",
        "DType",
        "NDArray",
        "Sequence",
        "Symbol",
        "bool",
        "bytes",
        "dict",
    ),
    *("float", "int", "list", "np", "object", "str", "tuple", "type"),
}


def write(root: Path) -> None:
    """Writes __init__.pyi, and for ndarray/ and symbol/ a stub of all operators, one of each
    namespace and one of the methods, when the package is built."""
    (root / "__init__.pyi").write_text(
        HEADER.format(imports=root_imports((root / "__init__.py").read_text()))
    )
    for package in ARRAYS:
        folder = root / package
        # MXNet's Custom has any parameters: the packages define it themselves
        every = {n: op for n, op in REGISTRY.items() if callable_by(n) and n != "Custom"}
        (folder / "_operators.pyi").write_text(functions(package, every))
        for namespace, prefixes in NAMESPACES.items():
            found = {
                n.removeprefix(p): REGISTRY[n]
                for p in prefixes
                for n in REGISTRY
                if n.startswith(p)
            }
            if namespace == "sparse":
                found |= {name: REGISTRY[full] for name, full in OTHERS.items()}
            own = defined(folder / f"{namespace}.py")
            found = {n: op for n, op in found.items() if callable_by(n) and n not in own}
            (folder / f"_{namespace}_operators.pyi").write_text(functions(package, found))
        (folder / "_methods.pyi").write_text(methods(folder))


def callable_by(name: str) -> bool:
    """Can Python code call an operator by this name?"""
    return name.isidentifier() and not keyword.iskeyword(name)


def defined(path: Path) -> set[str]:
    """The functions that a module defines, if there is one."""
    body = ast.parse(path.read_text()).body if path.exists() else ()
    return {node.name for node in body if isinstance(node, ast.FunctionDef)}


def _head(package: str) -> str:
    return HEADER.format(imports=IMPORTS[package])


def functions(package: str, operators: dict[str, Operator]) -> str:
    """The stub of a module of operators."""
    names = sorted(operators)
    return (
        _head(package)
        + f"__all__ = {names}\n\n"
        + "".join(signature(operators[name], name, ARRAYS[package]) for name in names)
    )


def methods(folder: Path) -> str:
    """The stub of a class Methods: what the class of a package gets after its definition."""
    array = ARRAYS[folder.name]
    other = f"other: {array} | float | np.generic"
    sources = [ast.parse(path.read_text()) for path in sorted(folder.glob("*.py"))]
    own = {f.name for tree in sources for f in _body_of(tree, array)}
    found: dict[str, str] = {}
    for name in ("neg", "invert", "abs", "pos"):
        found[f"__{name}__"] = f"def __{name}__(self) -> {array}: ..."
    for name in OPERATORS:
        for form in ("", "r", *(["i"] if array == "NDArray" else [])):
            found[f"__{form}{name}__"] = f"def __{form}{name}__(self, {other}) -> {array}: ..."
    for name in COMPARISONS:
        found[f"__{name}__"] = f"def __{name}__(self, {other}) -> {array}: ..."
    for name in ("eq", "ne"):  # of object they take anything and return bool
        found[f"__{name}__"] = (
            f"def __{name}__(self, other: object) -> {array}: ...  # type: ignore[override]"
        )
    for name, op in sorted(REGISTRY.items()):
        first = op.inputs[:1] and not op.variadic
        if first and name[0].islower() and callable_by(name):
            found[name] = signature(op, name, array, method=True).strip()
    for tree in sources:
        found |= dict(_attached(tree, array))
    lines = [f"    {text}" for name, text in found.items() if name not in own]
    return f"{_head(folder.name)}class Methods({BASES[folder.name]}):\n" + "\n".join(lines) + "\n"


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
    """A method's line in a stub, with those of its annotations whose names the stub has."""
    if name in ("__float__", "__int__", "__index__", "__len__", "__bool__"):
        kind = {"__float__": "float", "__bool__": "bool"}.get(name, "int")
        return f"def {name}(self) -> {kind}: ..."
    if function is None:
        return f"def {name}(self, *args: Any, **kwargs: Any) -> Any: ..."
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    for a in (*named, arguments.vararg, arguments.kwarg):
        if a is not None and (a is named[0] or not _is_known(a.annotation)):
            a.annotation = None
    arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
    arguments.kw_defaults = [d and ast.Constant(...) for d in arguments.kw_defaults]
    known = function.returns is not None and _is_known(function.returns)
    returns = ast.unparse(function.returns) if function.returns and known else "Any"
    return f"def {name}({ast.unparse(arguments)}) -> {returns}: ..."


def _is_known(annotation: ast.expr | None) -> bool:
    """Has a stub all names of an annotation?"""
    nodes = ast.walk(annotation) if annotation is not None else ()
    return all(n.id in KNOWN for n in nodes if isinstance(n, ast.Name))


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
            *(f"{table}: dict[str, Any]" for table in ("HOOKS", "MODULES", "NAMES", "PATHS")),
            "def place(path: str) -> str: ...",
            *(f"from .{module} import {attribute} as {name}" for name, module, attribute in places),
        ]
    )


def signature(op: Operator, name: str, array: str, method: bool = False) -> str:
    """One function, or method, of a stub file."""
    if op.variadic:
        parts = [f"*{op.inputs[0][1:]}: {array}"]
    else:
        parts = [f"{i}: {array} | None = ..." for i in op.inputs]
        if op.inputs and array == "NDArray":  # an input that a Symbol lacks becomes a variable
            parts[0] = f"{op.inputs[0]}: NDArray"
    if method:
        parts[0] = "self"
    open_ended = op.has(Specialised) or any(keyword.iskeyword(p.name) for p in op.params)
    for p in op.params:
        if p.name in op.inputs or keyword.iskeyword(p.name):
            continue
        kind = "str" if isinstance(p.kind, tuple) else KINDS.get(p.kind.removesuffix("?"), "Any")
        if isinstance(p.kind, tuple) or p.kind[-1] == "?" or p.default is None:
            kind = f"{kind} | None"
        parts.append(
            f"{p.name}: {kind} = ..."
            if p.default is not REQUIRED or not op.variadic or p.name == op.variadic_key
            else f"{p.name}: {kind}"
        )
    parts += [
        f"out: {array} | Sequence[{array}] | None = ...",
        "name: str | None = ...",
        "attr: dict[str, str] | None = ...",
        *(
            ["ctx: Context | None = ..."]
            if array == "NDArray" and "ctx" not in op.param_index
            else []
        ),
        *(["**kwargs: Any"] if open_ended else []),
    ]
    n = op.n_visible or op.n_outputs
    result = array if n == 1 or array == "Symbol" else "Any" if callable(n) else f"list[{array}]"
    return f"def {name}({', '.join(parts)}) -> {result}: ...\n"
