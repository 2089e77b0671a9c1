"""The C core is built by cffi, the array type by hand; packages are the root's folders of Python
files."""

from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).resolve().parent
FOLDERS = [
    p.parent for p in ROOT.glob("*/__init__.py")
]  # neither tests nor docs, examples, build, .venv
PACKAGES = sorted({file.parent.relative_to(ROOT) for top in FOLDERS for file in top.rglob("*.py")})

setup(
    packages=["plait", *(".".join(["plait", *folder.parts]) for folder in PACKAGES)],
    cffi_modules=["engine/ffi_build.py:ffi"],
    ext_modules=[
        Extension(
            "plait.engine._array",
            ["engine/array_type.c"],
            py_limited_api=True,
            extra_compile_args=[
                "-std=gnu11",
                "-O3",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Wno-missing-field-initializers",
            ],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
