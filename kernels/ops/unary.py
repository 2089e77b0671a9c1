"""Unary pointwise math."""
from ..pointwise import pointwise

pointwise("relu", "x > 0 ? x : (x != x ? x : 0)", dtypes="all", aliases=("_sparse_relu",),
          ref=lambda xp, x: xp.maximum(x, 0),
          grad=lambda F, dy, x, y: dy * (y > 0),
          doc="max(x, 0); NaN stays NaN. Source: Nair and Hinton 2010.")
pointwise("exp", "exp(x)", aliases=("_sparse_exp",),
          ref=lambda xp, x: xp.exp(x), grad=lambda F, dy, x, y: dy * y, doc="e to the power of x.")
