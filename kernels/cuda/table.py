"""The table of CUDA kernels, which the files beside this one fill."""

from ..native import Table

TABLE = Table()
native, choose = TABLE.native, TABLE.choose
