"""The C type under NDArray: what enters compiled code, arrays that die or were never filled, and
what the core holds for Python. What may crash runs in a process of its own."""

import copy
import gc
import os
import pickle
import subprocess
import sys

import numpy as np
import plait as mx
import pytest
from plait import autograd, engine, nd, sym
from plait.engine import callback
from plait.engine.error import DTypeError, InvalidType, ShapeError


def run(code: str, **env) -> subprocess.CompletedProcess:
    """A script in a new process. Its warnings are errors, as here."""
    head = (
        "import sys\nimport numpy as np\nimport plait as mx\nfrom plait import nd, sym, autograd\n"
    )
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", head + code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )


def bound():
    x = sym.Variable("x")
    made = (x * 2).bind(mx.cpu(), {"x": nd.ones((4,))}, args_grad={"x": nd.zeros((4,))})
    made.forward(is_train=True)
    return made


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (lambda: nd.ones((4,), dtype="float16"), DTypeError),
        (lambda: nd.ones((4,), dtype="float64"), DTypeError),
        (lambda: nd.ones((2,)), ShapeError),
        (lambda: nd.ones((4, 1)), ShapeError),
        (lambda: nd.ones((2, 2)).tostype("csr"), InvalidType),
    ],
)
def test_only_arrays_that_a_program_was_compiled_for_enter_it(array, error):
    executor = bound()
    executor.arg_arrays[0] = array()
    with pytest.raises(error):
        executor.forward(is_train=True)
    executor = bound()
    executor.grad_arrays[0] = array()
    with pytest.raises(error):
        executor.backward([nd.ones((4,))])


def test_arrays_of_other_devices_with_the_same_memory_enter():
    executor = bound()
    executor.arg_arrays[0] = nd.full((4,), 3, ctx=mx.cpu(1))
    executor.forward(is_train=True)
    np.testing.assert_array_equal(executor.outputs[0].asnumpy(), np.full(4, 6, "float32"))


def test_an_exception_while_an_array_dies_is_the_one_that_arrives():
    result = run(
        """
def fails():
    raise ValueError("the user's")
class Memory:
    def __init__(self, values): self.values = values
    def __dlpack__(self, **kwargs): return self.values.__dlpack__()
    def __dlpack_device__(self): return 1, 0
def poisoned():
    x = nd.ones((2,))
    def fail(): raise KeyError("first")
    mx.engine.push(fail, writes=[x])
    try: x.wait_to_read()
    except mx.MXNetError: pass
    return x
foreign = lambda: nd.from_dlpack(Memory(np.ones(3)))
for make in (lambda: nd.from_numpy(np.ones(3)), foreign, poisoned):
    for _ in range(50):
        try:
            (make(), fails())
        except ValueError as error:
            assert str(error) == "the user's"
from plait.engine import callback
values = [v for v in callback._objects.values() if isinstance(v, (np.ndarray, Exception))]
assert not values, values
"""
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_memory_of_others_is_released_however_late_its_array_dies():
    """gc.callbacks die when the interpreter's own state does, after all modules."""
    result = run(
        """
import gc
x = nd.from_numpy(np.ones(3))
gc.callbacks.append(lambda phase, info, x=x: None)
"""
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_objects_that_the_core_holds_are_dropped():
    before = len(callback._objects)
    x = nd.from_numpy(np.ones(3))
    assert len(callback._objects) == before + 1
    del x
    gc.collect()
    assert len(callback._objects) == before


class Unfilled(nd.NDArray):
    def __init__(self):
        pass


@pytest.mark.parametrize("cls", [nd.NDArray, Unfilled, nd.sparse.CSRNDArray])
def test_an_array_without_values_is_empty_and_harmless(cls):
    x = cls.__new__(cls)
    assert x.shape == (0,)
    engine.push(lambda: None, reads=[x])
    lib_version = engine.lib.pl_array_version(x._handle)
    assert lib_version == 0
    if cls is not nd.sparse.CSRNDArray:
        x.wait_to_read()
        x.wait_to_write()
        x.attach_grad()
        assert (x + 1).shape == (nd.ones((0,)) + x).shape == (0,)
        assert copy.deepcopy(x).shape == pickle.loads(pickle.dumps(x)).shape == (0,)
        assert x.asnumpy().size == 0


def test_a_subclass_is_an_operand_on_either_side():
    x = Unfilled()
    engine._array.exchange(x, nd.array([1.0, 2.0]))
    for _ in range(2):  # the second time from the plan that the first one left
        np.testing.assert_array_equal((nd.array([3.0, 4.0]) + x).asnumpy(), [4, 6])
        np.testing.assert_array_equal((x + nd.array([3.0, 4.0])).asnumpy(), [4, 6])


def test_a_sparse_array_has_no_handle_to_give():
    x = nd.array([[0, 1.0], [2.0, 0]]).tostype("csr")
    with pytest.raises(InvalidType, match="dense"):
        engine.push(lambda: None, reads=[x])
    with pytest.raises(InvalidType, match="dense"):
        engine.wait_for_var(x)


@pytest.mark.parametrize("name", ["_handle", "_spec"])
def test_what_an_array_is_cannot_be_overwritten(name):
    x = nd.ones((2,))
    with pytest.raises(AttributeError):
        setattr(x, name, 0)


@pytest.mark.parametrize(
    "arguments",
    [(), (0,), ("x",) * 7, (0, (), (), [1], (), (), -1), (0, 0, 0, 0, 0, 0, 0)],
)
def test_calls_of_the_c_module_with_wrong_arguments_raise(arguments):
    from plait.engine import _array

    for name in ("invoke", "run", "invoke1", "make", "make_of", "exchange", "shared"):
        with pytest.raises((TypeError, mx.MXNetError, SystemError)):
            getattr(_array, name)(*arguments)
    with pytest.raises((TypeError, AttributeError)):
        nd.NDArray._handle.__get__(1)
    assert autograd.is_recording() is False
