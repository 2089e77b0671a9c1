"""The operator records by family; importing this module fills the registry."""
from . import (
               activation,
               binary,
               conv,
               create,
               dense,
               dropout,
               histogram,
               image,
               index,
               loss,
               norm,
               pool,
               recurrent,
               reduce,
               sample,
               sequence,
               shape,
               slicing,
               unary,
               update,
)

__all__ = ["activation", "binary", "conv", "create", "dense", "dropout", "histogram", "image",
           "index", "loss", "norm", "pool", "recurrent", "reduce", "sample", "sequence", "shape",
           "slicing", "unary", "update"]
