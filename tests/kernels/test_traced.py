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
@pytest.mark.parametrize("name", CASES)
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
    from plait.kernels.loops.c import functions
    from plait.kernels.loops.trace import trace
    from plait.kernels.record import Operator, Type

    op = Operator(
        name="_gathered",
        infer=lambda ins, **_: [Type(ins[1].shape, "float32")],
        ref=lambda xp, x, at: x[at],
        inputs=("x", "at"),
    )
    ins = [Type((5,), "float32"), Type((3,), "int64")]
    (made,) = functions(trace(op, ins, op.infer(ins), {}))
    assert made.checks
    assert "bad |=" in made.text
    assert made.places[0] == Buffer(2)


# operators of which a sample has no kernel in float32, by reason: they run NumPy and take the GIL
NUMPY = {
    "numpy's generator draws it": (
        "LeakyReLU _chosen _image_random_brightness _image_random_color_jitter "
        "_image_random_contrast _image_random_hue _image_random_lighting "
        "_image_random_saturation _multinomial_counts _random_gamma _random_gamma_like "
        "_random_generalized_negative_binomial _random_generalized_negative_binomial_like "
        "_random_negative_binomial _random_negative_binomial_like _random_poisson "
        "_random_poisson_like _sample_exponential _sample_gamma "
        "_sample_generalized_negative_binomial _sample_multinomial "
        "_sample_negative_binomial _sample_normal _sample_poisson _sample_uniform "
        "_sample_unique_zipfian _sampled _shuffle _standard_gamma"
    ),
    "numpy.linalg, numpy.fft, numpy.histogram, numpy.searchsorted": (
        "_linalg_cofactors _linalg_complement _linalg_det _linalg_eig _linalg_eigvals "
        "_linalg_eigvalsh _linalg_gelqf _linalg_inverse _linalg_inverse_or_zero "
        "_linalg_pinv _linalg_potri _linalg_slogdet _linalg_solve _linalg_svd "
        "_linalg_svdvals _linalg_syevd _contrib_fft _contrib_ifft _histogram "
        "_searchsorted"
    ),
    "what it does next depends on values": (
        "_bessel_i _contrib_PSROIPooling _contrib_RROIAlign _contrib_bipartite_matching "
        "_contrib_count_sketch _contrib_edge_id _contrib_index_copy "
        "_deformable_psroi_grad _gamma_slope _kept_factors _polygamma _psroi_pooling_grad "
        "_npx_constraint_check _rroi_align_grad _strided_grad fill_element_0index take"
    ),
    "a loop in its reference for each element of a window, a step or a series": (
        "Correlation Deconvolution Pooling Pooling_v1 _contrib_DeformablePSROIPooling "
        "_contrib_hawkesll _correlation_grad _random_pdf_dirichlet _random_pdf_gamma "
        "_random_pdf_generalized_negative_binomial _random_pdf_negative_binomial "
        "_random_pdf_poisson _rnn_grad col2im"
    ),
    "the loops of its reference are slower than NumPy, which leaves axes in place": (
        "BatchNorm_v1 IdentityAttachKLSparseReg LayerNorm UpSampling "
        "_adaptive_avg_pool_grad _contrib_AdaptiveAvgPooling2D _contrib_BatchNormWithReLU "
        "_contrib_SyncBatchNorm _contrib_box_encode _contrib_index_array "
        "_cvcopyMakeBorder _cvimresize _image_adjust_lighting _image_crop _image_resize "
        "_image_tensor_normalize _linalg_gemm _linalg_gemm2 _linalg_sumlogdiag "
        "_prod_others _random_pdf_exponential _random_pdf_normal _random_pdf_uniform "
        "_ravel_multi_index _running _sparse_retain _unravel_index khatri_rao"
    ),
    "another dtype than the kernels': float64 of float32, or an axis that they lack": (
        "SequenceMask _np_cumsum add_n log_softmax norm softmax"
    ),
    "it moves memory of the host, or has no elements": (
        "_NoGradient _contrib_getnnz _from_memory _memory _no_gradient _no_second_order "
        "_zeros_without_dtype cast_storage reset_arrays"
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


STANDS = (traits.Front, traits.Collective, traits.Lowered, traits.Specialised, traits.Eager)


def test_which_operators_run_numpy():
    lookup("_npi_add")  # loads those of mx.np
    found = {op.name for op in REGISTRY.values() if op.samples and runs_numpy(op)}
    named = [name for names in NUMPY.values() for name in names.split()]
    assert len(named) == len(set(named))
    assert found == set(named)
