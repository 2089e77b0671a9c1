"""The operator records by family; importing this module fills the registry."""
from . import binary, create, dense, index, reduce, shape, unary

__all__ = ["binary", "create", "dense", "index", "reduce", "shape", "unary"]
