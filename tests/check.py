"""make check: lint, types, C warnings and the house rules that a test-suite does not see. Prints
what is wrong."""

import ast
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import floors
from typesetting import COLUMNS, columns, wrap

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = tuple(sorted(p.parent.name for p in ROOT.glob("*/__init__.py")))
WARNINGS = [
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wno-unused-parameter",
    "-Werror",
]


def run(title: str, *command, cwd=ROOT) -> bool:
    result = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True)
    print(f"{title}: {'ok' if result.returncode == 0 else 'FAILED'}", flush=True)
    if result.returncode:
        print(result.stdout + result.stderr)
    return result.returncode == 0


def types() -> bool:
    """mypy on the package, found under its name through a link: the root's folder may have any
    other; and on a user's program, in which it must find just the errors that the program says."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "plait").symlink_to(ROOT)
        if not user_types(folder):
            return False
        parts = sorted({p.name for p in ROOT.glob("*.py")} - {"setup.py"} | set(PACKAGES))
        return run(
            "types",
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            ROOT / "pyproject.toml",
            "--cache-dir",
            ROOT / ".mypy_cache",
            *(f"plait/{p}" for p in parts),
            cwd=folder,
        )


def user_types(folder: str) -> bool:
    """Does mypy find the errors in tests/user_program.py that its comments say, and no others?"""
    program = ROOT / "tests/user_program.py"
    lines = program.read_text().splitlines()
    wanted = {(n, t.split("# error: ")[1]) for n, t in enumerate(lines, 1) if "# error: " in t}
    cache = ROOT / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--cache-dir", cache, "--follow-imports", "silent"]
    result = subprocess.run([*command, program], cwd=folder, capture_output=True, text=True)
    found = re.findall(r"user_program.py:(\d+): error: .*\[(.*)\]", result.stdout)
    good = {(int(n), code) for n, code in found} == wanted
    print(f"types in a user's program: {'ok' if good else 'FAILED'}", flush=True)
    if not good:
        print(result.stdout + result.stderr)
    return good


def python_files():
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")
    yield from ROOT.glob("*.py")


def absolute_imports() -> list[str]:
    """Imports of our own folders that are not relative: they would load a second copy. Scripts of
    the benchmark run as a user's do."""
    found = []
    for path in python_files():
        text = path.read_text()
        if path.parent == ROOT / "tools/benchmark" and '__name__ == "__main__"' in text:
            continue
        for node in ast.walk(ast.parse(text)):
            modules = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module]
                if isinstance(node, ast.ImportFrom) and not node.level
                else []
            )
            for module in modules:
                if module.split(".")[0] in ("plait", *PACKAGES):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} imports {module}")
    return found


def unannotated(path: Path) -> list[str]:
    """Public functions and methods without the types of all parameters and of the result."""
    found = []

    def visit(body: list[ast.stmt], in_class: bool) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):  # a private class may be the base of a public one
                visit(node.body, True)
            elif isinstance(node, ast.If):
                visit([*node.body, *node.orelse], in_class)
            elif isinstance(node, ast.FunctionDef) and (
                not node.name.startswith("_") or node.name in ("__init__", "__call__")
            ):
                a = node.args
                static = "staticmethod" in map(ast.unparse, node.decorator_list)
                named = [*a.posonlyargs, *a.args][in_class and not static :]
                each = [*named, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
                missing = [x.arg for x in each if x.annotation is None]
                if node.returns is None and not (node.name == "__init__" and each):
                    missing.append("return")
                if missing:
                    names = ", ".join(missing)
                    found.append(f"{path}:{node.lineno} {node.name}: no types of {names}")

    visit(ast.parse(path.read_text()).body, False)
    return found


SOURCES = {".c", ".h", ".cu", ".cuh", ".cpp"}


def long_lines(path: Path) -> list[str]:
    """Lines that are too long; in Markdown those that could be shorter, so no link of its own."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        width = columns(line)
        alone = path.suffix == ".md" and wrap(line) == [line]
        if width > COLUMNS and not alone:
            found.append(f"{path}:{number} has {width} columns, the most are {COLUMNS}")
    return found


def texts() -> list[Path]:
    """Sources and prose that people wrote."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines() if Path(name).suffix in SOURCES | {".md"}]


def report(title: str, problems: list[str]) -> bool:
    print(f"{title}: {'ok' if not problems else 'FAILED'}")
    print("".join(f"  {p}\n" for p in problems), end="")
    return not problems


def main() -> int:
    c_files = sorted(
        [
            *(ROOT / "engine").rglob("*.c"),
            *(ROOT / "kernels/cpu").glob("*.c"),
            *(ROOT / "kernels/cuda").glob("*.c"),
            *(ROOT / "graph").glob("*.c"),
            *(ROOT / "ndarray").glob("*.c"),
            *(ROOT / "tools").rglob("*.c"),
        ]
    )
    python = sys.executable
    include = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"],
        capture_output=True,
        text=True,
    ).stdout.strip()
    imports = floors.every_import(ROOT)
    all_ways = [*imports, *floors.every_include(ROOT)]
    checks = [
        run("lint", python, "-m", "ruff", "check", "."),
        run("format", python, "-m", "ruff", "format", "--check", "."),
        types(),
        run(
            "C warnings",
            "cc",
            *WARNINGS,
            "-I",
            ROOT,
            "-I",
            ROOT / "kernels/cpu",
            "-I",
            Path(sys.prefix) / "include",
            "-I",
            include,
            *c_files,
        ),
        report("floors", floors.upward(all_ways, ROOT)),
        report("import circles", floors.circles(all_ways)),
        report("kinds of devices", floors.device_tests(imports, ROOT)),
        report("absolute imports", absolute_imports()),
        report("annotations", [line for path in python_files() for line in unannotated(path)]),
        report("long lines", [line for path in texts() for line in long_lines(path)]),
        subprocess.run([python, ROOT / "tests/gpu/check.py"]).returncode == 0,
    ]
    return 0 if all(checks) else 1


if __name__ == "__main__":
    sys.exit(main())
