"""plait: eager arrays and symbolic graphs on one threaded engine, with the API of MXNet 1.9. `import plait as mx`."""
from .engine import Context, cpu, current_context, gpu
from .engine.error import MXNetError
from . import ndarray as nd
from . import ndarray
from .ndarray import autograd
