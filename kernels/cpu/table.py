"""The CPU's table of kernels, which the files beside this one fill."""

from ..native import Table

TABLE = Table()
native, wants, choose = TABLE.native, TABLE.wants, TABLE.choose
