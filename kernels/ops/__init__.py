"""The operator records by family; importing this module fills the registry."""
from . import (activation, binary, conv, create, dense, dropout, index, norm, pool, reduce, sequence,
               shape, unary)

__all__ = ["activation", "binary", "conv", "create", "dense", "dropout", "index", "norm", "pool", "reduce", "sequence",
           "shape", "unary"]
