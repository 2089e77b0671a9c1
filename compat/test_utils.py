"""mx.test_utils: comparisons, random arrays and gradient checks for test suites written for
MXNet."""

from __future__ import annotations

import os  # noqa: F401 - star imports take these along, as MXNet's do
import random  # noqa: F401

import numpy as np  # noqa: F401

from .. import ndarray as nd  # noqa: F401
from .. import symbol as sym  # noqa: F401
from ..engine import Context, cpu, current_context  # noqa: F401
from ..ndarray import autograd  # noqa: F401
from ..ndarray.ndarray import NDArray  # noqa: F401
from .testing.assertions import (  # noqa: F401 - offered from here
    almost_equal,
    assert_allclose,
    assert_almost_equal,
    assert_almost_equal_ignore_nan,
    assert_almost_equal_with_err,
    assert_exception,
    compare_ndarray_tuple,
    same,
    same_array,
)
from .testing.compare import (  # noqa: F401 - offered from here
    check_speed,
    checkShapes,
    get_etol,
    has_tvm_ops,
    is_aarch64_run,
    is_cd_run,
    is_op_runnable,
    locationError,
    same_symbol_structure,
)
from .testing.data import (  # noqa: F401 - offered from here
    download,
    download_model,
    get_bz2_data,
    get_cifar10,
    get_im2rec_path,
    get_mnist,
    get_mnist_iterator,
    get_mnist_pkl,
    get_mnist_ubyte,
    get_zip_data,
)
from .testing.draw import (  # noqa: F401 - offered from here
    rand_ndarray,
    rand_shape_2d,
    rand_shape_3d,
    rand_shape_nd,
    random_arrays,
    random_sample,
)
from .testing.iterator import DummyIter  # noqa: F401 - offered from here
from .testing.matrices import (  # noqa: F401 - offered from here
    assign_each,
    assign_each2,
    collapse_sum_like,
    create_2d_tensor,
    create_vector,
    get_identity_mat,
    get_identity_mat_batch,
    new_matrix_with_real_eigvals_2d,
    new_matrix_with_real_eigvals_nd,
    new_orthonormal_matrix_2d,
    new_sym_matrix_with_real_eigvals_2d,
    new_sym_matrix_with_real_eigvals_nd,
    np_reduce,
    rand_coord_2d,
    random_uniform_arrays,
)
from .testing.sparse import (  # noqa: F401 - offered from here
    create_sparse_array,
    create_sparse_array_zd,
    rand_sparse_ndarray,
    shuffle_csr_column_indices,
)
from .testing.statistics import (  # noqa: F401 - offered from here
    chi_square_check,
    gen_buckets_probs_with_ppf,
    mean_check,
    var_check,
    verify_generator,
)
from .testing.surroundings import (  # noqa: F401 - offered from here
    discard_stderr,
    environment,
    list_gpus,
    retry,
)
from .testing.symbolic import (  # noqa: F401 - offered from here
    check_consistency,
    check_numeric_gradient,
    check_symbolic_backward,
    check_symbolic_forward,
    numeric_grad,
    simple_forward,
)
from .testing.tolerance import (  # noqa: F401 - offered from here
    default_atols,
    default_context,
    default_dtype,
    default_numeric_eps,
    default_rtols,
    effective_dtype,
    get_atol,
    get_rtol,
    get_tolerance,
    get_tols,
    set_default_context,
)
from .testing.training import (  # noqa: F401 - offered from here
    check_gluon_hybridize_consistency,
    compare_optimizer,
)
