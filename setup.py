"""The C core is built by cffi, a few Python types by hand, on all cores; packages are the root's
folders of Python files."""

import os
import sys
import time
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
    "-g0",
    "-Wall",
    "-Wextra",
    "-Werror=implicit-function-declaration",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
]


def c_type(module: str, *sources: str) -> Extension:
    """Python types written in C, in a module of their own."""
    headers = sorted({str(h) for s in sources for h in Path(s).parent.glob("*.h")})
    return Extension(
        module, list(sources), depends=headers, py_limited_api=True, extra_compile_args=FLAGS
    )


def is_current(made: Path, command: list[str]) -> bool:
    """Is an object newer than the files that it was made from, by the same command? The compiler
    lists these files; folders of headers may have other names in the next build."""
    try:
        sources = made.with_suffix(".d").read_text().replace("\\\n", " ").split()[1:]
        built = made.stat().st_mtime_ns
        same = made.with_suffix(".command").read_text() == written(command)
        return same and all(Path(name).stat().st_mtime_ns < built for name in sources)
    except OSError:
        return False


def written(command: list[str]) -> str:
    return " ".join(word for word in command if not word.startswith("-I"))


class IncrementalBuild(build_ext):
    """build_ext that keeps its objects in build/, compiles what changed since, and that on as many
    cores as this process may use."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.build_temp = str(ROOT / "build" / f"objects-{sys.implementation.cache_tag}")

    def build_extensions(self) -> None:
        compiler = self.compiler
        compile_in_turn, compile_one = compiler.compile, compiler._compile

        def compile_changed(made, source, ext, cc_args, extra_postargs, pp_opts):
            made, depends = Path(made), Path(made).with_suffix(".d")
            command = [*compiler.compiler_so, *cc_args, source, *extra_postargs]
            if not is_current(made, command):
                start = time.time_ns()
                listed = [*extra_postargs, "-MMD", "-MF", str(depends)]
                compile_one(str(made), source, ext, cc_args, listed, pp_opts)
                os.utime(made, ns=(start, start))  # a source that changed meanwhile is newer
                made.with_suffix(".command").write_text(written(command))

        def compile_at_once(sources, *args, **kwargs):
            with ThreadPoolExecutor(CORES) as pool:
                made = pool.map(lambda source: compile_in_turn([source], *args, **kwargs), sources)
                return [o for objects in made for o in objects]

        compiler.compile, compiler._compile = compile_at_once, compile_changed
        super().build_extensions()


setup(
    cmdclass={"build_ext": IncrementalBuild},
    packages=["plait", *(".".join(["plait", *folder.parts]) for folder in PACKAGES)],
    cffi_modules=["engine/ffi_build.py:ffi"],
    ext_modules=[
        c_type("plait.engine._array", "engine/array_type.c"),
        c_type("plait.engine._layer", "engine/layer.c"),
        c_type("plait.ndarray._part", "ndarray/part.c"),
        c_type(
            "plait.graph._graph",
            "graph/graph_type.c",
            "graph/graph_walk.c",
            "graph/graph_buffers.c",
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
