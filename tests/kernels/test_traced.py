"""Kernels made from references (kernels/loops/): which operators have them, and what they compute.

What is expected is the reference on NumPy, called here.
"""

import numpy as np
import pytest
from native_calls import check, compare, complete, expected, on_lane, run_native
from plait import MXNetError
from plait.kernels import traits
from plait.kernels.cpu.backend import CPU
from plait.kernels.loops import built
from plait.kernels.record import REGISTRY, lookup
from plait.kernels.spec import NUMPY_DTYPES

CASES = sorted(built.OPERATORS)


def made_from_reference(found):
    return found is not None and found.function == "plk_traced_run"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_every_sample_has_a_kernel(name, dtype):
    """And no operator is listed that has another one."""
    op = REGISTRY[name]
    found = [
        CPU.choose(op, ins, outs, attrs)
        for ins, outs, attrs in built.calls(op, dtype, built.OPERATORS[name])
    ]
    assert all(x is not None and not x.python for x in found)
    assert dtype == "float64" or all(map(made_from_reference, found)), "take it out of built.py"


def drawn(ins, low=0.3, high=0.9):
    rng = np.random.default_rng(len(ins))
    arrays = []
    for t in ins:
        x = rng.uniform(low, high, t.shape) if t.dtype.startswith("f") else np.zeros(t.shape)
        arrays.append(x.astype(NUMPY_DTYPES[t.dtype]))
    return arrays


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in CASES if not REGISTRY[name].random])
def test_results_are_the_references(name, dtype):
    op = REGISTRY[name]
    for ins, _, attrs in built.calls(op, dtype, built.OPERATORS[name]):
        arrays = drawn(ins)
        got, outs = run_native(op, arrays, [t.dtype for t in ins], attrs)
        compare(op, got, expected(op, arrays, attrs, outs), dtype)


SIZES = [(2, 2, 7, 9), (1, 3, 6, 6), (4, 1, 5, 1), (3, 3, 3, 3)]


@pytest.mark.parametrize("shape", SIZES)
def test_other_sizes_share_the_compiled_loops(shape):
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    n, c, h, w = shape
    check("Crop", [x], offset=(0, 0), h_w=(max(h // 2, 1), max(w // 2, 1)), num_args=1)
    check("_image_to_tensor", [x])
    check("_contrib_MultiBoxPrior", [x], sizes=(0.5, 0.2), ratios=(1, 2))
    check("_contrib_allclose", [x.reshape(n, -1), x.reshape(n, -1) + 1e-9])


def test_special_values_move_as_they_are():
    x = np.array([[np.nan, -0.0, np.inf], [-np.inf, 1e-40, 3]], "float32").reshape(1, 1, 2, 3)
    op = REGISTRY["Crop"]
    attrs = complete(op, {"offset": (0, 1), "h_w": (2, 2), "num_args": 1})
    (got,), _ = run_native(op, [x], ["float32"], attrs)
    assert got.tobytes() == np.ascontiguousarray(x[..., 1:]).tobytes()


def test_results_do_not_depend_on_threads():
    """The lane's threads share a call; run_native uses one."""
    rng = np.random.default_rng(1)
    x = [rng.standard_normal(s).astype("float32") for s in ((300, 700), (300, 700), (300, 1))]
    op, attrs = REGISTRY["_contrib_group_adagrad_update"], {"lr": 0.1}
    x[2] = np.abs(x[2])
    one, _ = run_native(op, x, ["float32"] * 3, complete(op, attrs))
    many = on_lane(op.name, x, ["float32"] * 3, attrs)
    assert one[0].tobytes() == np.asarray(many[0]).tobytes()


def test_an_index_out_of_range_is_an_error():
    from plait.kernels.loops.arguments import Buffer
    from plait.kernels.loops.c import candidates
    from plait.kernels.loops.trace import trace
    from plait.kernels.record import Operator, Type

    op = Operator(
        name="_gathered",
        infer=lambda ins, **_: [Type(ins[1].shape, "float32")],
        ref=lambda xp, x, at: x[at],
        inputs=("x", "at"),
    )
    ins = [Type((5,), "float32"), Type((3,), "int64")]
    ((made, *_),) = candidates(trace(op, ins, op.infer(ins), {}))
    assert made.checks
    assert "bad |=" in made.text
    assert made.places[0] == Buffer(2)


# operators of which a sample has no kernel in float32, by reason: they run NumPy and take the GIL
NUMPY = {
    "LAPACK and pocketfft: eigenvalues, singular values, Fourier transforms": (
        "_contrib_fft _contrib_ifft _linalg_cofactors _linalg_eig _linalg_eigvals "
        "_linalg_eigvalsh _linalg_pinv _linalg_svd _linalg_svdvals _linalg_syevd"
    ),
    "distributions and draws of mx.np that NumPy's generator has": (
        "_chosen _kept_factors _multinomial_counts _sampled"
    ),
    "how long it computes depends on values": ("_bessel_i _gamma_slope _polygamma"),
    "a loop in its reference for each step: of a gradient without what forward kept": ("_rnn_grad"),
    "what it does depends on numbers that it draws": ("_image_random_color_jitter"),
    "the error that it raises names values": (
        "_no_gradient _no_second_order _npx_constraint_check"
    ),
}


def runs_numpy(op):
    """Has a sample no kernel in float32? Not of operators that stand for others or are Python."""
    trait = op.trait(traits.WeightUpdate)
    if any(map(op.has, STANDS)) or trait and trait.wide or op.name.startswith("_mp_"):
        return False
    try:
        calls = list(built.calls(op, "float32"))
    except MXNetError:
        return False  # it takes no float32
    found = [CPU.choose(op, *call) for call in calls]
    return any(x is None or x.python for x in found)


STANDS = (
    *(traits.Front, traits.Collective, traits.Lowered, traits.Specialised, traits.Eager),
    traits.SameMemory,  # a view, in programs
)


def test_which_operators_run_numpy():
    lookup("_npi_add")  # loads those of mx.np
    found = {op.name for op in REGISTRY.values() if op.samples and runs_numpy(op)}
    named = [name for names in NUMPY.values() for name in names.split()]
    assert len(named) == len(set(named))
    assert found == set(named)
