"""Misused parts of the classic API say what is wrong, with which value, and how to mend it."""

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd, sym

IMAGE = np.zeros((16, 16, 3), np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """img.rec with four images, its index ok.idx, and neg.idx with a place below 0."""
    at = tmp_path_factory.mktemp("misuse")
    with mx.recordio.MXIndexedRecordIO(at / "ok.idx", at / "img.rec", "w") as out:
        for i in range(4):
            out.write_idx(i, mx.recordio.pack_img((0, float(i), i, 0), IMAGE, img_fmt=".png"))
    (at / "neg.idx").write_text("0\t-24\n")
    with mx.recordio.MXRecordIO(at / "junk.rec", "w") as out:
        out.write(mx.recordio.pack((0, 1.0, 0, 0), b"junkjunk"))
    return at


def network():
    fc = sym.FullyConnected(sym.var("data"), num_hidden=3, name="fc")
    return sym.SoftmaxOutput(fc, name="softmax")


def dense():
    net = gluon.nn.Dense(2)
    net.initialize()
    return net


def image(path_imgrec, **more):
    return mx.io.ImageRecordIter(
        path_imgrec=str(path_imgrec), data_shape=(3, 8, 8), batch_size=1, **more
    )


def estimator(net):
    trainer = gluon.Trainer(dense().collect_params(), "sgd")
    return gluon.contrib.estimator.Estimator(net, gluon.loss.L2Loss(), trainer=trainer)


def batches():
    return gluon.data.DataLoader(gluon.data.ArrayDataset(np.zeros((4, 3)), np.zeros(4)), 2)


def reader(index):
    return lambda f: mx.recordio.MXIndexedRecordIO(f / index, f / "img.rec", "r").read_idx(77)


CALLS = {
    "no symbol": (lambda f: mx.mod.Module(None), "symbol must be a Symbol, got NoneType"),
    "no iterator": (
        lambda f: mx.mod.Module(network()).fit(np.zeros((3, 4)), num_epoch=1),
        "fit: train_data must be a DataIter, got ndarray\n  fix: mx.io.NDArrayIter",
    ),
    "shapes that are no pairs": (
        lambda f: mx.mod.Module(network()).bind((4, 5)),
        r"bind: shapes must be a list of .* got \(4, 5\)\n  fix: data_shapes=",
    ),
    "sym_gen of a symbol alone": (
        lambda f: mx.mod.BucketingModule(lambda k: network(), default_bucket_key=3),
        r"sym_gen must return \(symbol, data_names, label_names\), got Symbol for the bucket 3",
    ),
    "add what is no module": (
        lambda f: mx.mod.SequentialModule().add(3),
        r"add takes a module, got int\n  fix: add\(mx.mod.Module",
    ),
    "the name of an optimizer": (
        lambda f: mx.kv.create().set_optimizer("sgd"),
        r"must be an Optimizer, got 'sgd'\n  fix: mx.optimizer.create",
    ),
    "batch_size 0": (
        lambda f: mx.io.NDArrayIter(np.zeros((3, 5)), batch_size=0),
        "batch_size must be an integer above 0, got 0",
    ),
    "batch_size as text": (
        lambda f: mx.io.NDArrayIter(np.zeros((3, 5)), batch_size="a"),
        "batch_size must be an integer above 0, got 'a'",
    ),
    "ResizeIter": (lambda f: mx.io.ResizeIter(3, 2), "data_iter must be a DataIter, got int"),
    "PrefetchingIter": (lambda f: mx.io.PrefetchingIter(3), "iterator 0 must be a DataIter"),
    "index of records": (
        lambda f: image(f / "img.rec", path_imgidx=str(f / "none.idx")),
        "record index: cannot read '.*none.idx': No such file",
    ),
    "place below 0": (
        lambda f: image(f / "img.rec", path_imgidx=str(f / "neg.idx")),
        "byte -24 cannot be: places are counted from 0\n  at: .*img.rec",
    ),
    "no image": (
        lambda f: image(f / "junk.rec"),
        "cannot decode 8 bytes beginning b'junkjunk': no known format",
    ),
    "missing index": (reader("none.idx"), "MXIndexedRecordIO: cannot read '.*none.idx'"),
    "missing key": (reader("ok.idx"), "no record has the key 77, there are 4\n  at: .*ok.idx"),
    "csr of three axes": (
        lambda f: nd.sparse.csr_matrix((2, 3, 4)),
        r"must be \(data, indices, indptr\), got \(2, 3, 4\)\n  fix:",
    ),
    "foreach": (
        lambda f: nd.contrib.foreach(lambda x, s: x, nd.zeros((3, 2)), [nd.zeros(2)]),
        r"foreach: body must return \(outputs, states\), got NDArray",
    ),
    "while_loop": (
        lambda f: nd.contrib.while_loop(lambda i: i < 3, lambda i: i + 1, [nd.zeros(1)], 3),
        r"while_loop: func must return \(outputs, loop_vars\), got NDArray",
    ),
    "foreach of Symbols": (
        lambda f: sym.contrib.foreach(lambda x, s: [x, s, s], sym.var("x"), [sym.var("s")]),
        r"foreach: body must return \(outputs, states\), got 3 things",
    ),
    "no net": (lambda f: estimator(3), "net must be a gluon Block, got 3"),
    "no handler": (
        lambda f: estimator(dense()).fit(batches(), epochs=1, event_handlers=3),
        "handlers must be an EventHandler or a list of EventHandler, got: 3",
    ),
    "size of a crop": (
        lambda f: mx.image.random_crop(nd.array(IMAGE), 3),
        r"size must be \(width, height\), got 3",
    ),
    "data_shape": (
        lambda f: mx.image.CreateAugmenter((3, 8)),
        r"data_shape must be \(channels, height, width\), got \(3, 8\)",
    ),
    "missing image": (
        lambda f: mx.image.ImageIter(
            1, (3, 8, 8), imglist=[[0, "no.jpg"]], path_root=str(f)
        ).next(),
        "ImageIter: cannot read '.*no.jpg': No such file .*\n  fix: is path_root the folder",
    ),
    "missing list": (
        lambda f: mx.image.ImageIter(1, (3, 8, 8), path_imglist=str(f / "no.lst"), path_root="."),
        "image list: cannot read '.*no.lst'",
    ),
    "mode of a cell": (
        lambda f: mx.rnn.FusedRNNCell(3, mode="gruu"),
        "mode must be one of rnn_relu, rnn_tanh, lstm, gru, got 'gruu'",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_misuse_raises_documented_errors(name, folder):
    call, text = CALLS[name]
    with pytest.raises(mx.MXNetError, match=text):
        call(folder)


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"format": "plait-optimizer-states-1", "states": [[0]]}',
        b'{"format": "plait-optimizer-states-1", "states": [], "optimizer": {"class": "SGD"}}',
    ],
)
def test_damaged_optimizer_states_raise_and_change_nothing(text, tmp_path):
    nd.save(str(tmp_path / "a"), {"__meta__": nd.array(np.frombuffer(text, np.uint8), dtype="u1")})
    trainer = gluon.Trainer(dense().collect_params(), "sgd")
    with pytest.raises(mx.MXNetError, match="damaged"):
        trainer.load_states(str(tmp_path / "a"))
    assert trainer._updaters[0].states == {}
