"""Compatibility mode: scripts written for MXNet run as they are, in a process that asked for it."""

import subprocess
import sys
import textwrap

import plait as mx
import pytest
from plait import nd, sym

SCRIPT = """
    import sys
    import numpy as np
    import mxnet as mx
    import mxnet.ndarray as F
    from mxnet import autograd, gluon, init, nd
    from mxnet.gluon import nn
    from mxnet.gluon.data.vision import transforms
    from mxnet.gluon.model_zoo import vision
    from mxnet.ndarray import NDArray
    from mxnet.test_utils import *

    assert sys.argv == [__file__, "--epochs", "3"], sys.argv
    assert __name__ == "__main__"
    assert mx.__version__ == "1.9.1"
    assert np.int is int and np.float is float and np.bool is bool or np.bool is np.bool_
    net = nn.HybridSequential()
    net.add(nn.Dense(8, activation="relu"), nn.Dense(2))
    net.initialize(init.Xavier(), ctx=mx.cpu())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    x = mx.nd.array(np.ones((4, 3), dtype=np.float))
    with autograd.record():
        loss = gluon.loss.L2Loss()(net(x), nd.zeros((4, 2)))
    loss.backward()
    trainer.step(4)
    assert isinstance(loss, NDArray) and isinstance(loss, mx.nd.NDArray) and F is mx.nd
    assert_almost_equal(x, x.asnumpy())
    print("done")
"""
SAME = [
    ("mxnet.nd", "plait.ndarray"),
    ("mxnet.ndarray", "plait.ndarray"),
    ("mxnet.ndarray.ndarray", "plait.ndarray.ndarray"),
    ("mxnet.ndarray.random", "plait.ndarray.random"),
    ("mxnet.sym", "plait.symbol"),
    ("mxnet.symbol", "plait.symbol"),
    ("mxnet.autograd", "plait.ndarray.autograd"),
    ("mxnet.random", "plait.ndarray.random"),
    ("mxnet.context", "plait.engine.device"),
    ("mxnet.base", "plait.engine.base"),
    ("mxnet.profiler", "plait.engine.profiler"),
    ("mxnet.initializer", "plait.training.initializer"),
    ("mxnet.init", "plait.training.initializer"),
    ("mxnet.metric", "plait.training.metric"),
    ("mxnet.optimizer", "plait.training.optimizer"),
    ("mxnet.optimizer.optimizer", "plait.training.optimizer.optimizer"),
    ("mxnet.lr_scheduler", "plait.training.lr_scheduler"),
    ("mxnet.callback", "plait.training.callback"),
    ("mxnet.recordio", "plait.data.recordio"),
    ("mxnet.visualization", "plait.symbol.viz"),
    ("mxnet.test_utils", "plait.compat.test_utils"),
    ("mxnet.engine", "plait.engine"),
    ("mxnet.name", "plait.symbol.name"),
    ("mxnet.attribute", "plait.symbol.attribute"),
    ("mxnet.executor", "plait.symbol.executor"),
    ("mxnet.gluon", "plait.gluon"),
    ("mxnet.gluon.nn", "plait.gluon.nn"),
    ("mxnet.gluon.rnn", "plait.gluon.rnn"),
    ("mxnet.gluon.loss", "plait.gluon.loss"),
    ("mxnet.gluon.utils", "plait.gluon.utils"),
    ("mxnet.gluon.data", "plait.gluon.data"),
    ("mxnet.gluon.data.vision", "plait.gluon.data.vision"),
    ("mxnet.gluon.data.vision.transforms", "plait.gluon.data.vision.transforms"),
    ("mxnet.gluon.block", "plait.gluon.block"),
    ("mxnet.gluon.parameter", "plait.gluon.parameter"),
    ("mxnet.gluon.trainer", "plait.gluon.trainer"),
    ("mxnet.gluon.model_zoo", "plait.gluon.model_zoo"),
    ("mxnet.gluon.model_zoo.vision", "plait.gluon.model_zoo.vision"),
    ("mxnet.gluon.model_zoo.model_store", "plait.gluon.model_zoo.model_store"),
    ("mxnet.gluon.contrib", "plait.gluon.contrib"),
    ("mxnet.gluon.contrib.nn", "plait.gluon.contrib.nn"),
    ("mxnet.gluon.contrib.data", "plait.gluon.contrib.data"),
]


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, **options
    )


def test_a_script_runs_as_it_is(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    run = python("-m", "plait.compat", script, "--epochs", "3")
    assert run.returncode == 0, run.stderr
    assert run.stdout == "done\n"


def test_a_script_finds_the_modules_beside_it(tmp_path):
    (tmp_path / "model.py").write_text("from mxnet.gluon import nn\nnet = nn.Dense(3)\n")
    (tmp_path / "train.py").write_text("from model import net\nprint(net.name)\n")
    run = python("-m", "plait.compat", tmp_path / "train.py")
    assert run.stdout == "dense0\n", run.stderr


def test_modules_are_the_very_same_objects():
    code = (
        "import importlib, plait, plait.compat\nplait.compat.install()\nfor old, new in"
        f" {SAME!r}:\n    a, b = importlib.import_module(old), importlib.import_module(new)\n   "
        " assert a is b, (old, new)\n    assert b.__name__ == new and b.__spec__.name == new,"
        " (b.__name__, b.__spec__.name)\nplait.compat.install()\nimport mxnet\nassert mxnet.nd is"
        " plait.nd and mxnet.cpu is plait.cpu"
    )
    run = python("-c", code)
    assert run.returncode == 0, run.stderr


def test_plait_first_or_mxnet_first_is_one_copy():
    code = (
        "import plait.compat; plait.compat.install()\nimport mxnet.gluon.nn\nimport plait.gluon.nn,"
        " plait\nassert mxnet.gluon.nn.Dense is plait.gluon.nn.Dense"
    )
    assert python("-c", code).returncode == 0


def test_nothing_is_active_unasked():
    code = (
        "import sys, numpy, plait, plait.gluon\nassert not hasattr(numpy, 'float_')\n"
        "assert not any('compat' in type(f).__module__ for f in sys.meta_path)"
    )
    run = python("-c", code)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("name", ["mxnet.nosuch", "mxnet.gluon.nosuch", "mxnet.nd.nosuch"])
def test_unknown_modules_are_import_errors(name):
    run = python("-c", f"import plait.compat; plait.compat.install(); import {name}")
    assert run.returncode and f"ModuleNotFoundError: No module named '{name}'" in run.stderr


def test_a_missing_script_is_one_message():
    run = python("-m", "plait.compat", "nosuch.py")
    assert run.returncode == 1 and run.stderr == "compat: no such script: nosuch.py\n"


def test_help():
    run = python("-m", "plait.compat", "--help")
    assert run.returncode == 0 and run.stdout.startswith("usage: python -m plait.compat")


def test_the_real_mxnet_is_not_replaced_behind_its_users_back(tmp_path):
    (tmp_path / "mxnet.py").write_text("")
    run = python("-c", "import mxnet, plait.compat; plait.compat.install()", cwd=tmp_path)
    assert "the real mxnet is already imported" in run.stderr


def test_naive_engine_is_honoured():
    code = (
        "import os; os.environ['MXNET_ENGINE_TYPE'] = 'NaiveEngine'\nimport plait.compat;"
        " plait.compat.install()\nimport threading, mxnet as mx\nseen = []\nmx.engine.push(lambda:"
        " seen.append(threading.get_ident()))\nassert seen == [threading.get_ident()]"
    )
    run = python("-c", code)
    assert run.returncode == 0, run.stderr


def test_environment_variables_that_mean_something_are_honoured():
    code = (
        "import os; os.environ.update(MXNET_UPDATE_ON_KVSTORE='0', MXNET_BACKWARD_DO_MIRROR='1')\n"
        "import plait.compat; plait.compat.install()\nfrom plait.training.kvstore import choose\n"
        "from plait.graph import residuals\n"
        "assert choose.update_on_store is False and residuals.default == 'mirror'"
    )
    run = python("-c", code)
    assert run.returncode == 0, run.stderr


def test_names_that_modules_import_are_found_in_them():
    code = (
        "import plait.compat; plait.compat.install()\n"
        "from mxnet.metric import ndarray\nfrom mxnet.symbol.contrib import foreach\n"
        "from mxnet.profiler import c_str\nimport mxnet as mx\n"
        "assert ndarray is mx.nd and foreach is mx.sym.contrib.foreach\n"
        "assert mx.base.c_str is c_str and not hasattr(mx.metric, 'no_such_name')\n"
        "assert not hasattr(mx.nd, 'HybridBlock')"
    )
    run = python("-c", code)
    assert run.returncode == 0, run.stderr


NUMBERS = """
    import math, multiprocessing, pickle, urllib
    import numpy as np
    import mxnet as mx
    from mxnet import nd

    one, x = nd.array([2.5]), nd.array([[1, 2], [4, 9]])
    assert float(one.asnumpy()) == 2.5 and int(one.asnumpy()) == 2 and complex(one.asnumpy()) == 2.5
    assert "%.2f %d" % (one.asnumpy(), one.asnumpy()) == "2.50 2"
    row = x.asnumpy()[1, :1]
    assert float(row) == 4 and float(row * 2 + 1) == 9 and float(np.sqrt(row)) == 2
    assert float(x.asnumpy().sum(axis=0, keepdims=True)[:, 1]) == 11 and math.log(one.asnumpy()) > 0
    kept = np.zeros(2)
    kept[0] = one.asnumpy()
    kept[1:] = row
    assert kept.tolist() == [2.5, 4.0]
    assert float(one.tostype("row_sparse").asnumpy()) == 2.5
    # full reductions are NumPy's scalars, not arrays
    for value in (x.asnumpy().sum(), np.max(x.asnumpy()), x.asnumpy().mean(), x.asnumpy()[0, 0]):
        assert type(value) is np.float32, type(value)
    assert type(pickle.loads(pickle.dumps(one.asnumpy()))) is np.ndarray
    assert repr(one.asnumpy()) == "array([2.5], dtype=float32)"
    for wrong in (float, int, complex):
        try:
            wrong(x.asnumpy())
        except (TypeError, ValueError):
            pass
        else:
            raise AssertionError(wrong)
    assert np.all(x == x) and np.any(x > 3) and not np.all(x > 3)
    assert issubclass(multiprocessing.pool.ThreadPool, object) and urllib.request.urlopen
    print("done")
"""


def test_arrays_of_one_element_are_numbers_as_numpy_had_them(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(NUMBERS))
    run = python("-W", "error", "-m", "plait.compat", script)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


def test_arrays_are_plain_unasked():
    code = "import numpy, plait; assert type(plait.nd.ones((1,)).asnumpy()) is numpy.ndarray"
    run = python("-c", code)
    assert run.returncode == 0, run.stderr


LACKING = [
    ("from mxnet.contrib import onnx2mx", "mx.contrib.onnx2mx: mx.onnx is in one module"),
    ("import mxnet.numpy_dispatch_protocol", "mx.numpy_dispatch_protocol: this is how MXNet"),
    (
        "import mxnet as mx; mx.nd.contrib.intgemm_prepare_data",
        "mx.nd.contrib.intgemm_prepare_data: the bindings",
    ),
    ("import mxnet.contrib.tensorrt", "mx.contrib.tensorrt: TensorRT"),
    ("from mxnet.gluon import probability", "mx.gluon.probability: distributions"),
]


def test_names_that_are_not_here_say_what_to_use():
    """In one process under both names of the package; each error is of the type that programs
    catch."""
    code = f"""
        import plait.compat
        plait.compat.install()
        import mxnet, plait
        for code, text in {LACKING!r}:
            for package in ("mxnet", "plait"):
                line = code.replace("mxnet", package, 1)
                try:
                    exec(line, {{}})
                except plait.MXNetError as error:
                    assert isinstance(error, (ImportError, AttributeError)), line
                    assert str(error).startswith(text) and "fix:" in str(error), (line, str(error))
                else:
                    raise AssertionError(line)
        for module in (mxnet, plait, mxnet.contrib, mxnet.nd):
            assert not hasattr(module, "nosuch")
        print("done")
    """
    run = python("-c", textwrap.dedent(code))
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr


def test_what_is_missing_is_missing():
    """A row of the table stands for nothing that exists; it goes when its name comes."""
    from plait.compat import contrib as mxcontrib
    from plait.engine import missing

    for owner, below in ((mx, ""), (nd, "nd."), (sym, "sym."), (mxcontrib, "contrib.")):
        found = [name for name in dir(owner) if missing.reason(below + name)]
        assert not found
