"""Builds plait.engine._core: the engine and the CPU kernels behind one cffi module. setuptools
calls `ffi`."""

from __future__ import annotations

import importlib
import re
import sys
import sysconfig
import types
from collections.abc import Iterable
from pathlib import Path

from cffi import FFI

ROOT = Path(__file__).resolve().parent.parent


def declarations(header: Path) -> str:
    """The part of a header that cffi reads: between its two marks."""
    text = header.read_text()
    body = re.search(
        r"/\* cffi reads from here on: \*/(.*)/\* cffi stops reading here \*/", text, re.DOTALL
    )
    if not body:
        raise ValueError(f"{header}: the marks for cffi are missing")
    return re.sub(r"^#.*$", "", body.group(1), flags=re.MULTILINE)


def in_order(found: Iterable[Path]) -> list[Path]:
    """Headers, each after those that it includes."""
    ordered: dict[Path, None] = {}

    def add(header: Path) -> None:
        if header not in ordered:
            names = re.findall(r'^#include "(.*)"', header.read_text(), re.MULTILINE)
            near = [folder / name for name in names for folder in (header.parent, ROOT)]
            for included in filter(Path.is_file, near):
                add(included)
            ordered[header] = None

    for header in found:
        add(header)
    return list(ordered)


def generate() -> None:
    """Writes what is made from the operator records, without importing the package's root: C
    kernels and stubs."""
    # their __init__ needs the module built here
    skeleton = {"plait": ROOT, "plait.engine": ROOT / "engine"}
    saved = {k: v for k, v in sys.modules.items() if k == "plait" or k.startswith("plait.")}
    for k in saved:
        del sys.modules[k]
    for name, path in skeleton.items():
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = [str(path)]
    try:
        importlib.import_module("plait.kernels.ops")
        importlib.import_module("plait.kernels.cpu.generate").write(
            ROOT / "kernels" / "cpu" / "generated"
        )
        importlib.import_module("plait.kernels.stubs").write(ROOT)
    finally:
        for k in [k for k in sys.modules if k == "plait" or k.startswith("plait.")]:
            del sys.modules[k]
        sys.modules.update(saved)


def for_machine(source: Path) -> bool:
    """Does the machine that this is built for have the instruction set of a wrapper?"""
    on_x86 = sysconfig.get_platform().lower().endswith(("x86_64", "amd64"))
    return on_x86 or not source.stem.endswith(("_avx2", "_avx512"))


generate()
MARK = "cffi reads from here on"
FOLDERS = ["engine/core", "kernels/cpu", "kernels/cpu/generated", "kernels/cuda"]
headers = [
    h
    for h in in_order(h for folder in FOLDERS for h in sorted((ROOT / folder).glob("*.h")))
    if MARK in h.read_text()
]
# the structs of kernels that need no header: the module has them as text
alone = [c for c in sorted((ROOT / "kernels/cpu").glob("*.c")) if MARK in c.read_text()]
sources = [
    *sorted((ROOT / "engine/core").glob("*.c")),
    *sorted(filter(for_machine, (ROOT / "kernels/cpu/generated").glob("*.c"))),
    *sorted(
        c for c in (ROOT / "kernels/cpu").glob("*.c") if '#include "simd.h"' not in c.read_text()
    ),
    *sorted((ROOT / "kernels/cuda").glob("*.c")),
]
# a file with simd.h is compiled by its wrappers in generated/, once for each instruction set

ffi = FFI()
for header in (*headers, *alone):
    ffi.cdef(declarations(header))
ffi.cdef("""
extern "Python" int plpy_kernel(const void *params, void *const *bufs, const double *scalars);
extern "Python" int plpy_kernel_gpu(const void *params, void *const *bufs, const double *scalars);
extern "Python" int plpy_call(void *arg);
extern "Python" int plpy_cancel(void *arg);
""")
ffi.set_source(
    "plait.engine._core",
    "".join(f'#include "{h.relative_to(ROOT)}"\n' for h in headers)
    + "".join(map(declarations, alone)),
    sources=[str(s.relative_to(ROOT)) for s in sources],
    depends=[
        str(h.relative_to(ROOT))
        for folder in FOLDERS
        for h in sorted((ROOT / folder).glob("*.[chi]*"))
    ],
    include_dirs=[".", "kernels/cpu"],
    define_macros=[("_GNU_SOURCE", None)],
    extra_compile_args=[
        "-std=gnu11",
        "-O3",
        "-g0",  # Python's own flags have -g: three quarters of the library's bytes
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fno-thread-jumps",  # it merges selections into chains that do not vectorise well
        "-fwrapv",
        "-Wall",
        "-Wextra",
        "-Werror=implicit-function-declaration",
        "-Wno-unused-parameter",
    ],
    extra_link_args=["-pthread"],
    libraries=["dl", "m"],
    py_limited_api=True,
)
