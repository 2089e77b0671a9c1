"""Initializers: how parameters get their first values (mx.init)."""

from __future__ import annotations

import json
import math
import re
from typing import ClassVar

import numpy as np

from ..engine.error import (
    InvalidType,
    InvalidValue,
    MissingMethod,
    compose,
    did_you_mean,
    parse_json,
)
from ..engine.registry import table
from ..ndarray import NDArray, functions, random, serialization
from ..ndarray.launch import copy_into
from ..ndarray.ndarray import from_memory
from ..ndarray.numpy_mode import is_np_array  # noqa: F401
from ..ndarray.serialization import load  # noqa: F401


class InitializerError(InvalidValue):
    """An unknown initializer, or one that cannot initialize an array."""


class InitDesc(str):
    """A parameter's name and the attributes that determine its initialization.

    attrs: the variable's attributes; `__init__` holds an initializer (or its JSON text) that
        overrides the rules.
    global_init: the initializer that composite ones fall back to.
    """

    def __new__(cls, name, attrs=None, global_init=None):
        desc = super().__new__(cls, name)
        desc.attrs, desc.global_init = attrs or {}, global_init
        return desc


def register(klass):
    """Class decorator: makes an initializer known under its name in lower case."""
    _registry[klass.__name__.lower()] = klass
    return klass


def alias(*aliases):
    """Class decorator: further names of an initializer."""

    def add(klass):
        _registry.update((name.lower(), klass) for name in aliases)
        return klass

    return add


def create(*args, **kwargs):
    """An initializer from an initializer, a name, or the JSON text of `dumps`; further arguments
    are those of its class. Raises InitializerError."""
    if not args:
        raise InitializerError("an initializer must be an Initializer or its name, got nothing")
    init, *args = args
    if isinstance(init, (Initializer, Load, Mixed)) or (
        callable(init) and not isinstance(init, type)
    ):
        return init
    if isinstance(init, type):
        return init(*args, **kwargs)
    if not isinstance(init, str):
        raise InitializerError(f"an initializer must be an Initializer or its name, got {init!r}")
    if init.startswith("["):
        init, kwargs = parse_json(init, "the JSON of an initializer")
    klass = _registry.get(init.lower())
    if klass is None:
        rule = f"{init} is not registered. Please register with initializer.register first"
        raise InitializerError(compose(rule, fix=did_you_mean(init, _registry)))
    return klass(*args, **kwargs)


def _fill(arr: NDArray, value) -> None:
    """Writes a number, or an array that broadcasts to arr's shape, into arr."""
    if np.ndim(value) == 0:
        functions.full(arr.shape, float(value), arr.context, arr.dtype, out=arr)
    else:
        values = np.asarray(value, np.float32)
        try:
            values = np.broadcast_to(values, arr.shape)
        except ValueError:
            raise InitializerError(
                f"init: a value of shape {values.shape} does not broadcast to the parameter's shape"
                f" {arr.shape}"
            ) from None
        copy_into(from_memory(values, arr.context), arr)


def _uniform(arr: NDArray, low: float, high: float) -> None:
    _draw(random.uniform, low, high, arr)


def _normal(arr: NDArray, sigma: float) -> None:
    _draw(random.normal, 0, sigma, arr)


def _draw(sample, a: float, b: float, arr: NDArray) -> None:
    if arr._spec.dtype in ("float32", "float64", "float16"):
        sample(a, b, out=arr, ctx=arr.context)
    else:
        copy_into(sample(a, b, arr.shape, "float32", arr.context), arr)


class Initializer:
    """Base class. Override `_init_weight(name, arr)`; other parameters are initialized by the
    suffix of their name."""

    # end of the name -> method
    RULES: ClassVar[dict[str, str]] = {
        "weight": "_init_weight",
        "bias": "_init_bias",
        "gamma": "_init_gamma",
        "beta": "_init_beta",
        "min": "_init_zero",
        "max": "_init_one",
        "weight_quantize": "_init_quantized_weight",
        "bias_quantize": "_init_quantized_bias",
        "running_mean": "_init_zero",
        "running_var": "_init_one",
        "moving_mean": "_init_zero",
        "moving_var": "_init_one",
        "moving_inv_var": "_init_zero",
        "moving_avg": "_init_zero",
    }

    def __init__(self, **kwargs):
        self._kwargs, self._verbose, self._print_func = kwargs, False, None

    def set_verbosity(self, verbose=False, print_func=None):
        """Prints a line (with `print_func`) for each array that is initialized."""
        self._verbose = verbose
        self._print_func = print_func or (
            lambda x: f"|x| / sqrt(n) = {float(np.linalg.norm(x.asnumpy()) / x.size**0.5)}"
        )
        return self

    def _verbose_print(self, desc, init, arr):
        if self._verbose and self._print_func:
            import logging  # here: few say something

            logging.getLogger(__name__).info(
                "Initialized %s as %s: %s", desc, init, self._print_func(arr)
            )

    def dumps(self) -> str:
        """JSON text from which `create` reconstructs this initializer."""
        return json.dumps([self.__class__.__name__.lower(), self._kwargs])

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self._kwargs.items())})"

    def __eq__(self, other):
        return type(self) is type(other) and self._kwargs == other._kwargs

    __hash__ = object.__hash__

    def __call__(self, desc, arr: NDArray) -> None:
        """Fills arr. desc: an InitDesc or a name. Raises InitializerError when no rule fits the
        name."""
        if not isinstance(desc, str):
            raise InvalidType(f"name must be string, got {type(desc).__name__}")
        if not isinstance(desc, InitDesc):
            desc = InitDesc(desc)
            if desc.startswith("upsampling"):
                return self._init_bilinear(desc, arr)
            if desc.startswith("stn_loc") and desc.endswith(("weight", "bias")):
                return (
                    self._init_zero(desc, arr)
                    if desc.endswith("weight")
                    else self._init_loc_bias(desc, arr)
                )
        if desc.global_init is None:
            desc.global_init = self
        own = desc.attrs.get("__init__", "")
        if own:
            own = create(own)
            (own._init_weight if isinstance(own, Initializer) else own)(desc, arr)
            self._verbose_print(desc, own, arr)
            return None
        rule = max((end for end in self.RULES if desc.endswith(end)), key=len, default=None)
        getattr(self, "_init_default" if rule is None else self.RULES[rule])(desc, arr)
        self._verbose_print(desc, rule, arr)
        return None

    def _init_zero(self, _, arr):
        _fill(arr, 0)

    def _init_one(self, _, arr):
        _fill(arr, 1)

    _init_bias = _init_beta = _init_quantized_bias = _init_zero
    _init_gamma = _init_one

    def _init_quantized_weight(self, _, arr):
        copy_into(random.randint(-127, 127, arr.shape, "int32", arr.context), arr)

    def _init_loc_bias(self, _, arr):
        _fill(arr, np.array([1.0, 0, 0, 0, 1.0, 0]))

    def _init_bilinear(self, _, arr):
        _fill(arr, bilinear_kernel(arr.shape))

    def _init_weight(self, name, arr):
        raise MissingMethod(f"{type(self).__name__} must override _init_weight(name, arr)")

    def _init_default(self, name, _):
        raise InitializerError(
            f"Unknown initialization pattern for {name}: its name must end with one of "
            f"{', '.join(self.RULES)}\n  fix: give it an initializer of its own, "
            "init=mx.init.Normal()"
        )


def bilinear_kernel(shape) -> np.ndarray:
    """Weights (channels, 1, h, w) that make a transposed convolution interpolate bilinearly."""
    f = math.ceil(shape[3] / 2.0)
    c = (2 * f - 1 - f % 2) / (2.0 * f)
    x = 1 - np.abs(np.arange(shape[3]) / f - c)
    y = 1 - np.abs(np.arange(shape[2]) / f - c)
    return np.broadcast_to(np.outer(y, x), shape).astype(np.float32)


_registry = table(Initializer)


@register
@alias("zeros")
class Zero(Initializer):
    """Zeros."""

    def _init_weight(self, _, arr):
        _fill(arr, 0)


@register
@alias("ones")
class One(Initializer):
    """Ones."""

    def _init_weight(self, _, arr):
        _fill(arr, 1)


@register
class Constant(Initializer):
    """One value (a number, or an array that broadcasts to the parameter's shape)."""

    def __init__(self, value):
        super().__init__(value=value)
        self.value = value

    def dumps(self):
        value = self.value
        return json.dumps(
            ["constant", {"value": value if np.isscalar(value) else np.asarray(value).tolist()}]
        )

    def __eq__(self, other):
        return type(self) is type(other) and np.array_equal(
            np.asarray(self.value), np.asarray(other.value)
        )

    __hash__ = object.__hash__

    def _init_weight(self, _, arr):
        value = self.value
        _fill(arr, value.asnumpy() if isinstance(value, NDArray) else value)


@register
class Uniform(Initializer):
    """Uniform in [-scale, scale]."""

    def __init__(self, scale=0.07):
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, _, arr):
        _uniform(arr, -self.scale, self.scale)


@register
class Normal(Initializer):
    """Normal with mean 0 and standard deviation sigma."""

    def __init__(self, sigma=0.01):
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, _, arr):
        _normal(arr, self.sigma)


@register
class Orthogonal(Initializer):
    """scale times a matrix (first dimension, product of the others) with orthonormal rows or
    columns.

    Source: Saxe et al. 2013, arXiv:1312.6120.
    """

    def __init__(self, scale=1.414, rand_type="uniform"):
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale, self.rand_type = scale, rand_type

    def _init_weight(self, _, arr):
        matrix = functions.zeros((arr.shape[0], math.prod(arr.shape[1:])), arr.context)
        if self.rand_type == "uniform":
            _uniform(matrix, -1.0, 1.0)
        elif self.rand_type == "normal":
            _normal(matrix, 1.0)
        else:
            raise InitializerError(
                f"Orthogonal: rand_type must be uniform or normal, got {self.rand_type!r}"
            )
        u, _, v = np.linalg.svd(matrix.asnumpy(), full_matrices=False)
        _fill(arr, self.scale * (u if u.shape == matrix.shape else v).reshape(arr.shape))


@register
class Xavier(Initializer):
    """Random with variance set by the number of inputs and outputs.

    rnd_type: uniform in [-c, c] or gaussian with standard deviation c, where c = sqrt(magnitude /
        n);
    factor_type: n is the mean ("avg") of inputs and outputs, or one of them ("in", "out").
    Source: Glorot and Bengio 2010, AISTATS.
    """

    def __init__(self, rnd_type="uniform", factor_type="avg", magnitude=3):
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def _init_weight(self, name, arr):
        shape = arr.shape
        if len(shape) < 2:
            raise InitializerError(
                f"Xavier initializer cannot be applied to vector {name}. It requires at least 2D, "
                f"got shape {shape}"
            )
        window = math.prod(shape[2:])
        n_in, n_out = shape[1] * window, shape[0] * window
        factors = {"avg": (n_in + n_out) / 2.0, "in": n_in, "out": n_out}
        if self.factor_type not in factors:
            raise InitializerError(
                f"Incorrect factor type: must be avg, in or out, got {self.factor_type!r}"
            )
        scale = math.sqrt(self.magnitude / factors[self.factor_type])
        if self.rnd_type == "uniform":
            _uniform(arr, -scale, scale)
        elif self.rnd_type == "gaussian":
            _normal(arr, scale)
        else:
            raise InitializerError(
                f"Unknown random type: must be uniform or gaussian, got {self.rnd_type!r}"
            )


@register
class MSRAPrelu(Xavier):
    """Gaussian with variance 2 / (1 + slope^2) / n, for layers followed by (P)ReLU.

    Source: He et al. 2015, arXiv:1502.01852.
    """

    def __init__(self, factor_type="avg", slope=0.25):
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


@register
class Bilinear(Initializer):
    """Bilinear interpolation weights for upsampling by transposed convolution."""

    def _init_weight(self, _, arr):
        _fill(arr, bilinear_kernel(arr.shape))


@register
class LSTMBias(Initializer):
    """Zeros, and forget_bias at the forget gate; gates stand in the order in, forget, cell, out."""

    def __init__(self, forget_bias=1.0):
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name, arr):
        n = arr.shape[0] // 4
        values = np.zeros(arr.shape, np.float32)
        values[n : 2 * n] = self.forget_bias
        _fill(arr, values)


@register
class FusedRNN(Initializer):
    """Initializes the one parameter vector of the RNN operator: weights by `init`, biases zero,
    forget gates.

    init: an initializer, or None for the global one.
    """

    GATES: ClassVar[dict[str, tuple]] = {
        "rnn_relu": ("",),
        "rnn_tanh": ("",),
        "lstm": ("_i", "_f", "_c", "_o"),
        "gru": ("_r", "_z", "_o"),
    }

    def __init__(self, init, num_hidden, num_layers, mode, bidirectional=False, forget_bias=1.0):
        if isinstance(init, str):
            init = create(init)
        super().__init__(
            init=init.dumps() if init is not None else None,
            num_hidden=num_hidden,
            num_layers=num_layers,
            mode=mode,
            bidirectional=bidirectional,
            forget_bias=forget_bias,
        )
        self.init, self.num_hidden, self.num_layers = init, num_hidden, num_layers
        self.mode, self.bidirectional, self.forget_bias = mode, bidirectional, forget_bias

    def _init_weight(self, desc, arr):
        gates, h, dirs = self.GATES[self.mode], self.num_hidden, "lr" if self.bidirectional else "l"
        n = len(gates) * len(dirs) * h
        # weights: n * (input + h) for layer 0, n * (dirs * h + h) above it; biases: 2 n a layer
        n_input = arr.size // n - (self.num_layers - 1) * (h + len(dirs) * h + 2) - h - 2
        global_init = getattr(desc, "global_init", None)
        init = self.init or global_init
        flat, at = np.zeros(arr.size, np.float32), 0
        pieces = []
        for layer in range(self.num_layers):
            width = n_input if layer == 0 else len(dirs) * h
            pieces += [
                (f"{d}{layer}_{k}{g}_weight", (h, w))
                for d in dirs
                for k, w in (("i2h", width), ("h2h", h))
                for g in gates
            ]
        pieces += [
            (f"{d}{layer}_{k}{g}_bias", (h,))
            for layer in range(self.num_layers)
            for d in dirs
            for k in ("i2h", "h2h")
            for g in gates
        ]
        for name, shape in pieces:
            piece = functions.zeros(shape)
            if self.mode == "lstm" and name.endswith("_f_bias"):
                _fill(piece, self.forget_bias)
            else:
                init(InitDesc(name, global_init=global_init), piece)
            flat[at : at + piece.size] = piece.asnumpy().reshape(-1)
            at += piece.size
        _fill(arr, flat.reshape(arr.shape))


@register
class Load:
    """Takes values from saved arrays, by name (`arg:` and `aux:` are stripped); default_init
    initializes the rest.

    param: dict of NDArrays, or the name of a file.
    """

    def __init__(self, param, default_init=None, verbose=False):
        if isinstance(param, str):
            param = serialization.load(param)
        self.param = {k[4:] if k.startswith(("arg:", "aux:")) else k: v for k, v in param.items()}
        self.default_init, self.verbose = default_init, verbose

    def __call__(self, name, arr):
        if name in self.param:
            if arr.shape != self.param[name].shape:
                raise InitializerError(
                    f"Parameter {name} cannot be initialized from loading. Shape mismatch, target "
                    f"{arr.shape} vs loaded {self.param[name].shape}"
                )
            self.param[name].copyto(arr)
        elif self.default_init is None:
            raise InitializerError(
                f"Cannot Initialize {name}. Not found in loaded param and no default Initializer "
                "is provided.\n  fix: Load(param, default_init=mx.init.Xavier())"
            )
        else:
            self.default_init(name, arr)


@register
class Mixed:
    """The first initializer whose regular expression matches the parameter's name."""

    def __init__(self, patterns, initializers):
        if len(patterns) != len(initializers):
            raise InitializerError(
                f"Mixed: needs as many patterns as initializers, got {len(patterns)} and "
                f"{len(initializers)}"
            )
        self.map = [(re.compile(p), create(i)) for p, i in zip(patterns, initializers)]

    def __call__(self, name, arr):
        for pattern, init in self.map:
            if pattern.match(name):
                return init(name, arr)
        raise InitializerError(
            f'Parameter name {name} did not match any pattern of Mixed\n  fix: add a ".*" pattern '
            "at the end with a default initializer"
        )
