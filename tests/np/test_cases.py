"""What MXNet 1.9.1 gave for 407 expressions of np and npx (cases.json), on plait."""

import io
import json
import math
from pathlib import Path

import np_known as known
import numpy as onp
import plait as mx
import pytest
from plait.engine.error import MXNetError

CASES = json.loads((Path(__file__).parent / "cases.json").read_text())["cases"]


def variables(dtype="float32"):
    def A(x, dtype="float32"):
        return mx.np.array(x, dtype)

    found = {"np": mx.np, "npx": mx.npx, "A": A, "onp": onp, "mx": mx, "math": math, "io": io}
    for name, values in {
        "X": [[1, 2, 3], [4, 5, 6]],
        "Y": [[2, 1, 2], [3, 1, 1]],
        "V": [1, 2, 3],
        "W": [3, 1, 2],
        "M": [[4, 1, 1], [1, 3, 0], [1, 0, 5]],
    }.items():
        found[name] = A(values, dtype)
    floats = "float" in dtype
    found["P"] = A([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]] if floats else [[0, 1, 0], [1, 0, 1]], dtype)
    found["I"] = A([2, 0, 1], "int64")
    found["B"] = A([[1, 0, 1], [0, 1, 0]], "bool")
    found["T"] = A(onp.arange(12).reshape(2, 2, 3) / 4 + 0.1, dtype)
    found["T4"] = A(onp.arange(18).reshape(1, 2, 3, 3) / 7 + 0.1, dtype)
    found["K4"] = A(onp.arange(16).reshape(2, 2, 2, 2) / 9 + 0.1, dtype)
    found["IMG"] = A((onp.arange(48) * 5 % 251).reshape(4, 4, 3) / 255)
    return found


def leaves(value):
    return (
        [leaf for v in value for leaf in leaves(v)] if isinstance(value, (list, tuple)) else [value]
    )


def compare(got, expected, dtype, is_random):
    """expected: as cases.json has it; dtype: where plait's is meant to be another, else None."""
    kind = expected["t"]
    if kind in ("mx", "nd"):
        assert type(got) is (mx.np.ndarray if kind == "mx" else mx.nd.NDArray)
    if "shape" in expected:
        assert list(got.shape) == expected["shape"]
        assert onp.dtype(got.dtype).name == (dtype or expected["dtype"])
        if not is_random and "v" in expected:
            values = got.asnumpy() if hasattr(got, "asnumpy") else onp.asarray(got)
            have = values.astype(onp.float64).reshape(-1)[:64]
            onp.testing.assert_allclose(have, expected["v"], rtol=1e-5, atol=1e-6)
    elif kind in ("int", "bool"):
        assert got == {"True": True, "False": False}.get(expected["v"]) or got == int(expected["v"])
    elif kind == "NoneType":
        assert got is None


@pytest.mark.filterwarnings("ignore::plait.ndarray.numpy.fallback.NumpyFallback")
@pytest.mark.parametrize("name", sorted(CASES))
def test_what_mxnet_gave(name):
    case = CASES[name]
    mx.npx.set_np()
    try:
        got = eval(case["ex"], variables())
    except (MXNetError, TypeError):
        if "err" not in case:  # what MXNet refuses plait may answer, or refuse too
            raise
        return
    finally:
        mx.npx.reset_np()
    if "res" in case:
        results, expected = leaves(got), leaves(case["res"])
        dtypes = known.DTYPES.get(name, [None] * len(expected))
        for one, other, dtype in zip(results, expected, dtypes, strict=True):
            compare(one, other, dtype, "random" in name or name in known.RANDOM)
