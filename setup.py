"""The C core is built by cffi, the array type by hand; everything else is in pyproject.toml."""
from setuptools import Extension, setup

setup(cffi_modules=["engine/ffi_build.py:ffi"],
      ext_modules=[Extension("plait.engine._array", ["engine/array_type.c"], py_limited_api=True,
                             extra_compile_args=["-std=gnu11", "-O3", "-Wall", "-Wextra", "-Wno-unused-parameter",
                                                 "-Wno-missing-field-initializers"])],
      options={"bdist_wheel": {"py_limited_api": "cp311"}})
