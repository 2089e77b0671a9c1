"""Compatibility with MXNet: `import mxnet` as plait (install), old names."""

from .install import MXNET_VERSION, Values, install, main  # noqa: F401
