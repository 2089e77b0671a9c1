"""The C core is built by cffi, a few Python types by hand, on all cores; packages are the root's
folders of Python files."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
FOLDERS = [
    p.parent for p in ROOT.glob("*/__init__.py")
]  # neither tests nor docs, examples, build, .venv
PACKAGES = sorted({file.parent.relative_to(ROOT) for top in FOLDERS for file in top.rglob("*.py")})

# containers and `taskset` give fewer than the machine has
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()

FLAGS = [
    "-std=gnu11",
    "-O3",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]


def c_type(module: str, *sources: str) -> Extension:
    """Python types written in C, in a module of their own."""
    headers = sorted({str(h) for s in sources for h in Path(s).parent.glob("*.h")})
    return Extension(
        module, list(sources), depends=headers, py_limited_api=True, extra_compile_args=FLAGS
    )


class ParallelBuild(build_ext):
    """build_ext whose C files are compiled on as many cores as this process may use."""

    def build_extensions(self):
        compile_in_turn = self.compiler.compile

        def compile_at_once(sources, *args, **kwargs):
            with ThreadPoolExecutor(CORES) as pool:
                made = pool.map(lambda source: compile_in_turn([source], *args, **kwargs), sources)
                return [o for objects in made for o in objects]

        self.compiler.compile = compile_at_once
        super().build_extensions()


setup(
    cmdclass={"build_ext": ParallelBuild},
    packages=["plait", *(".".join(["plait", *folder.parts]) for folder in PACKAGES)],
    cffi_modules=["engine/ffi_build.py:ffi"],
    ext_modules=[
        c_type("plait.engine._array", "engine/array_type.c"),
        c_type(
            "plait.graph._graph",
            "graph/graph_type.c",
            "graph/graph_walk.c",
            "graph/graph_buffers.c",
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
