"""sym.np.linalg: the functions of np.linalg, which take Symbols where they take arrays."""

from ...ndarray.numpy.linalg import *
