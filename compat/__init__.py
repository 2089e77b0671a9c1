"""What exists only because MXNet had it: `import mxnet` means plait (install), old names."""

from .install import MXNET_VERSION, Values, install, main  # noqa: F401
