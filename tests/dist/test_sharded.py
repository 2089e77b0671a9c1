"""Trainer(shard="states"): the weights of unsharded training bit for bit, less memory for states,
and files of states for any number of ranks."""

import json

import launched
import numpy as np
import plait as mx
import pytest
from plait import gluon


@pytest.mark.parametrize("n", launched.FEW)
def test_weights_have_the_bits_of_unsharded_training(n, tmp_path):
    ratios = json.loads(launched.succeed(n, ["sharded.py", "compare", str(tmp_path)]))
    for label, ratio in ratios.items():
        if label.split()[0] in ("lamb", "lars", "lbsgd"):  # the largest weight is 54 % of all
            assert 0.5 < ratio < 0.7, label
        elif label.endswith("float32"):
            assert ratio == pytest.approx(1 / n, abs=0.02), label  # the rest: small weights
        else:  # more weights are small
            assert ratio == pytest.approx(1 / n, abs=0.1), label


def test_states_of_three_ranks_continue_on_two_and_on_one(tmp_path):
    launched.succeed(3, ["sharded.py", "write", str(tmp_path)])
    for n in (1, 2, 3):
        launched.succeed(n, ["sharded.py", "read", str(tmp_path)])
    results = [np.load(tmp_path / f"result-{n}.npz") for n in (1, 2, 3)]
    for name in results[0]:
        for other in results[1:]:
            np.testing.assert_allclose(other[name], results[0][name], rtol=1e-5, atol=1e-6)


WRONG = {
    "shard must be None or 'states', got 'weights'": {"shard": "weights"},
    "needs kvstore to be of 'dist'.*got 'device'": {"kvstore": "device"},
    "needs kvstore to be of 'dist'.*got None": {"kvstore": None},
    "needs kvstore to be of 'dist'.*got 'horovod'": {"kvstore": "horovod"},
    "got update_on_kvstore=False": {"update_on_kvstore": False},
    "gradients cannot be compressed": {"compression_params": {"type": "2bit"}},
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_sharded(message):
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    options = {"kvstore": "dist_sync", "shard": "states", **WRONG[message]}
    with pytest.raises(ValueError, match=message) as info:
        gluon.Trainer(net.collect_params(), "sgd", **options)
    assert isinstance(info.value, mx.MXNetError)


def test_sparse_weights_cannot_be_sharded():
    net = gluon.nn.Embedding(5, 3, sparse_grad=True)
    net.initialize()
    with pytest.raises(ValueError, match="needs dense weights and gradients.*row_sparse"):
        trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync", shard="states")
        trainer.step(1)


def test_a_subclass_says_itself_that_its_update_is_elementwise():
    class Norm(mx.optimizer.Adam):
        pass

    assert mx.optimizer.Adam.elementwise and not Norm().elementwise
