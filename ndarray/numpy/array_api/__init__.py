"""The Python array API standard 2024.12: the namespace that x.__array_namespace__() gives.

Arrays are those of mx.np; dtypes of results, defaults and names are the standard's. There are no
complex dtypes, and so no extension fft. https://data-apis.org/array-api/2024.12
"""

from . import creation, dtypes, elementwise, linalg, manipulation

__array_api_version__ = "2024.12"

_functions = (*(*creation.FUNCTIONS, *dtypes.FUNCTIONS, *manipulation.FUNCTIONS, *linalg.PRODUCTS),)
globals().update(dtypes.CONSTANTS)
globals().update({f.__name__: f for f in _functions})
globals().update(elementwise.MADE)

__all__ = [  # noqa: PLE0604
    *("__array_api_version__", "linalg"),
    *(*dtypes.CONSTANTS, *(f.__name__ for f in _functions), *elementwise.MADE),
]
