"""Random expressions in mx.np and in official NumPy: shapes, values and dtypes. Where NumPy
computes in another dtype (float64 of whole numbers, float16 of int8), mx.np's is expected."""

import numpy as onp
import plait as mx
import pytest
from plait import np

DTYPES = ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64")
UNARY = (
    "negative absolute sign floor ceil trunc rint sqrt cbrt exp expm1 exp2 log log2 log10 log1p sin"
    " cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees square isnan"
    " isinf isfinite signbit logical_not invert positive sinc nan_to_num around diff flatnonzero"
    " cumsum sort ravel transpose nonzero argwhere unique imag angle atleast_2d trim_zeros"
).split()
BINARY = (
    "add subtract multiply divide floor_divide remainder fmod maximum minimum fmax fmin hypot"
    " arctan2 copysign heaviside logaddexp logaddexp2 bitwise_and bitwise_or bitwise_xor gcd lcm"
    " equal not_equal greater greater_equal less less_equal logical_and logical_or logical_xor"
    " isclose divmod"
).split()
REDUCED = (
    "sum prod mean std var max min any all nansum nanmax nanmin nanmean ptp median count_nonzero"
    " argmax argmin"
).split()
OPERATORS = "+ - * / // % < <= > >= == != & | ^".split()
NUMBERS = ("2", "-2", "0", "1.5", "-0.5", "True", "7", "100")
SHAPED = """
np.roll(a,N,X) np.repeat(a,P,axis=X) np.pad(a,P,mode=M) np.concatenate([a,a],axis=X) np.tile(a,2)
np.stack([a,a],axis=Y) np.expand_dims(a,Y) np.tril(a,N) np.diag(a,N) np.rot90(a,N) np.trace(a)
np.delete(a,P,X) np.insert(a,P,3,X) np.take(a,N,X,mode='wrap') np.clip(a,-1,2) np.flip(a,X)
np.where(a>0,a,0) np.nan_to_num(a,nan=1.0) np.percentile(a,30,axis=X) np.cumprod(a,axis=X)
np.searchsorted(np.array([-2.,0,1]),a) np.digitize(a,np.array([-2.,0,1])) np.bincount(a)
np.histogram(a,bins=4) np.isin(a,[0,1,2]) np.gradient(a) np.unwrap(a) np.block([[a],[a]])
np.unique(a,return_index=True,return_inverse=True,return_counts=True) np.array_split(a,2)
np.argsort(a,axis=X,kind='stable') np.linalg.norm(a) np.average(a,axis=X) np.interp(a,[-1,2],[3,1])
a[N] a[1:] a[::-1] a[...,::2] a[None] a[a>0] a[[0,-1]] a[i] a[...,i] a[i,None] a[m] a[-1:0:-1]
""".split()
SETS = "a[N]=V a[1:]=V a[::-1]=b a[a>0]=V a[[0,-1]]=V a[i]=V a[m]=V a[...,::2]+=V a*=V".split()


class Draw:
    """An expression and its arrays, of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = onp.random.default_rng(seed)
        self.shape = self.any_shape()
        self.dtype = self.one(DTYPES)
        self.arrays = {"a": self.array(self.shape, self.dtype)}
        self.text = getattr(
            self,
            self.one(["unary", "binary", "number", "reduced", "into"] + ["shaped"] * 3 + ["sets"]),
        )()

    def one(self, of):
        return of[int(self.rng.integers(len(of)))]

    def any_shape(self):
        sizes = [0, 1, 2, 3, 4, 5]
        n = int(self.rng.integers(4))
        return tuple(int(s) for s in self.rng.choice(sizes, n, p=[0.06, 0.2, 0.2, 0.24, 0.2, 0.1]))

    def array(self, shape, dtype):
        x = self.rng.normal(size=shape) * 3
        if dtype.startswith("f") and x.size and self.rng.random() < 0.2:
            x.reshape(-1)[self.rng.integers(x.size)] = self.one([onp.nan, onp.inf, -onp.inf, -0.0])
        return onp.asarray(x > 0 if dtype == "bool" else abs(x) if dtype == "uint8" else x).astype(
            dtype
        )

    def beside(self, dtype=None):
        shape = [1 if self.rng.random() < 0.25 else n for n in self.shape]
        shape = (
            shape[int(self.rng.integers(len(shape) + 1)) :] if self.rng.random() < 0.3 else shape
        )
        self.arrays["b"] = self.array(tuple(shape), dtype or self.one(DTYPES))

    def view(self):
        return self.one(["", "", "[::-1]", ".T", "[...,::2]"]) if self.shape else ""

    def axis(self):
        n = len(self.shape)
        return self.one([None, *range(-n, n)])

    def unary(self):
        return f"np.{self.one(UNARY)}(a{self.view()})"

    def binary(self):
        self.beside()
        return self.one([f"np.{self.one(BINARY)}(a,b)", f"a {self.one(OPERATORS)} b"])

    def number(self):
        x, n = f"a{self.view()}", self.one(NUMBERS)
        return (
            f"{x} {self.one(OPERATORS)} {n}"
            if self.rng.random() < 0.6
            else f"{n} {self.one(OPERATORS)} {x}"
        )

    def reduced(self):
        name, axis = self.one(REDUCED), self.axis()
        if not name.startswith("arg") and self.rng.random() < 0.3:
            axis = tuple(
                int(i) for i in self.rng.permutation(len(self.shape))[: self.rng.integers(4)]
            )
        more = ", keepdims=True" if self.rng.random() < 0.4 else ""
        if name in ("sum", "prod", "any", "all", "mean") and self.rng.random() < 0.3:
            self.arrays["w"] = self.array(self.shape, "bool")
            return f"a.{name}(axis={axis}, where=w{more})"
        return f"np.{name}(a{self.view()}, axis={axis}{more})"

    def into(self):
        self.beside(self.dtype)
        self.arrays["o"] = self.array(self.shape, self.dtype)
        self.arrays["w"] = self.array(self.shape, "bool")
        return f"np.{self.one(['add', 'maximum', 'multiply', 'subtract'])}(a, b, out=o, where=w)"

    def shaped(self):
        n = len(self.shape)
        text = self.one(SHAPED)
        self.arrays["i"] = self.rng.integers(-2, 2, self.any_shape() or 1)
        self.arrays["m"] = self.array(self.shape[:1], "bool")
        for letter, value in {
            "X": self.axis(),
            "Y": int(self.rng.integers(-n - 1, n + 1)),
            "N": int(self.rng.integers(-4, 5)),
            "P": int(self.rng.integers(0, 3)),
            "M": repr(self.one(["constant", "edge", "reflect", "symmetric", "wrap", "mean"])),
        }.items():
            text = text.replace(letter, str(value))
        return text

    def sets(self):
        self.beside()
        text = self.one(SETS).replace("V", self.one(["0", "2.7", "True", "b"]))
        self.arrays["i"] = self.rng.integers(-2, 2, self.any_shape() or 1)
        self.arrays["m"] = self.array(self.shape[:1], "bool")
        return text.replace("N", str(int(self.rng.integers(-4, 5))))

    def run(self, module, convert):
        """What the expression gives, with `a` where it writes."""
        scope = {"np": module, **{k: convert(v) for k, v in self.arrays.items()}}
        if any(sign in self.text for sign in ("]=", "]+=", "*=")):
            exec(self.text, scope)
            return scope["a"]
        return eval(self.text, scope)


def compare(got, want, floats):
    """floats: the dtypes of float operands."""
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            compare(g, w, floats)
        return
    got = onp.asarray(got.asnumpy() if isinstance(got, mx.nd.NDArray) else got)
    want = onp.asarray(want)
    assert got.shape == want.shape
    kind = want.dtype.kind
    assert got.dtype.kind == {"u": got.dtype.kind if got.dtype.kind in "iu" else "i"}.get(
        kind, kind
    )
    if kind != "f":  # sums of int8 stay int8, as in MXNet
        onp.testing.assert_array_equal(got, want.astype(got.dtype))
        return
    assert got.dtype.name in (floats or ["float32"]) or got.dtype == want.dtype
    least = "float16" if "float16" in (got.dtype.name, want.dtype.name) else got.dtype.name
    near = {"float16": 2e-2, "float32": 3e-5, "float64": 1e-9}[least]
    with onp.errstate(over="ignore"):
        want = want.astype(got.dtype).astype("float64")
    onp.testing.assert_allclose(got.astype("float64"), want, rtol=near, atol=near)


CHUNK = 75


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 900, CHUNK))
def test_random_expressions(first):
    n_compared = 0
    for seed in range(first, first + CHUNK):
        draw = Draw(seed)
        copies = lambda convert: lambda x: convert(x.copy())
        try:
            with onp.errstate(all="ignore"):
                want = draw.run(onp, copies(onp.asarray))
        except Exception:  # what NumPy refuses is tested elsewhere
            continue
        n_compared += 1
        note = ", ".join(f"{k} {v.dtype} {v.shape}" for k, v in draw.arrays.items())
        try:
            got = draw.run(np, copies(np.array))
            floats = [v.dtype.name for v in draw.arrays.values() if v.dtype.kind == "f"]
            compare(got, want, floats)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {draw.text} of {note}") from error
    assert n_compared > CHUNK // 3
