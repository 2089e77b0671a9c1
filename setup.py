"""The C core is built by cffi; everything else is in pyproject.toml."""
from setuptools import setup

setup(cffi_modules=["engine/ffi_build.py:ffi"], options={"bdist_wheel": {"py_limited_api": "cp311"}})
