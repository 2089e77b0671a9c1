"""What notebooks show: arrays, blocks, reports, metrics and histories as HTML."""

import threading
import xml.etree.ElementTree as ET

import plait as mx
import pytest
from plait import engine, gluon, nd
from plait.engine import svg
from plait.gluon import nn
from plait.training.history import History


def cells(html):
    """The texts of all cells. Raises ParseError where the HTML is not well formed."""
    tree = ET.fromstring(f"<div>{html.replace('&nbsp;', ' ')}</div>")
    return ["".join(c.itertext()) for c in tree.iter() if c.tag in ("td", "th")]


def test_values_of_arrays():
    found = nd.array([[1, 2.5], [3, 4]])._repr_html_()
    assert cells(found) == ["", "0", "1", "0", "1", "2.5", "1", "3", "4"]
    assert "2x2 float32 cpu(0)" in "".join(ET.fromstring(found).itertext())
    assert cells(nd.array(3.5)._repr_html_())[-1] == "3.5"
    assert cells(nd.zeros((0, 3))._repr_html_()) == []
    assert "[0, :, :]" in nd.ones((2, 3, 4))._repr_html_()
    assert cells(mx.np.array([1, 2], dtype="int64")._repr_html_())[-2:] == ["1", "2"]
    assert cells(nd.array([1.5]).astype("bfloat16")._repr_html_())[-1] == "1.5"
    long = cells(nd.arange(1000)._repr_html_())
    assert len(long) == 2 * 10 and "\u2026" in long and long[-1] == "999"


def test_values_of_sparse_arrays():
    rows = nd.array([[0, 0], [2, 3], [0, 0]]).tostype("row_sparse")._repr_html_()
    assert "1 row stored" in rows and "<b>RowSparseNDArray</b> 3x2" in rows
    csr = nd.array([[0, 1, 0], [2, 0, 3]]).tostype("csr")._repr_html_()
    assert "3 elements stored" in csr and "<b>indptr</b>" in csr
    ET.fromstring(rows), ET.fromstring(csr)


def test_what_is_not_computed_is_not_waited_for():
    go = threading.Event()

    class Slow(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            go.wait(30)
            self.assign(out_data[0], req[0], in_data[0])

    @mx.operator.register("slow_for_a_notebook")
    class SlowProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Slow()

    y = nd.Custom(nd.ones((2,)), op_type="slow_for_a_notebook")
    found = y._repr_html_()
    go.set()
    if not engine.is_naive():
        assert "still being computed" in found
    assert cells(y._repr_html_()) != [] or not engine.is_ready(y._handle)
    y.wait_to_read()
    assert cells(y._repr_html_())[-2:] == ["1", "1"]


def test_failed_computations_show_their_error():
    bad = nd.linalg.potrf(nd.array([[-1.0, 0.0], [0.0, 1.0]]))
    try:
        bad.wait_to_read()
        pytest.fail("must fail")
    except mx.MXNetError:
        assert "<pre" in bad._repr_html_() and "potrf" in bad._repr_html_()


def test_blocks_are_trees():
    net = nn.HybridSequential(prefix="a<b>_")
    with net.name_scope():
        net.add(nn.Dense(4, in_units=3), nn.Dense(2))
    net.initialize()
    found = net._repr_html_()
    tree = ET.fromstring(found)
    text = "".join(tree.itertext())
    assert "a<b>_dense0_weight: 4x3" in text and "18 parameters" in text
    assert "others of unknown shape" in text and len(list(tree.iter("details"))) == 3
    net.hybridize()
    net(nd.ones((1, 3)))
    found = net._repr_html_()
    assert "<svg" in found and "26 parameters" in found and "<script" not in found
    assert "others of unknown shape" not in found


def test_reports_metrics_and_markup():
    net = nn.Dense(2, in_units=3)
    net.initialize()
    assert "no programs" in net.hybrid_report()._repr_html_()
    net.hybridize()
    net(nd.ones((1, 3)))
    assert "predict" in cells(net.hybrid_report()._repr_html_())
    memory = cells(net.memory_report(nd.ones((1, 3)))._repr_html_())
    assert memory[memory.index("parameters") + 1] == "32 B"
    metric = mx.metric.Accuracy(name="<right>")
    metric.update(nd.array([0, 1]), nd.array([[0.9, 0.1], [0.8, 0.2]]))
    assert cells(metric._repr_html_())[-2:] == ["<right>", "0.5"]
    assert svg.escape("<a href='x'>&\"") == "&lt;a href=&#x27;x&#x27;&gt;&amp;&quot;"


def test_histories():
    history = History()
    history.add(1, {"loss": 2.0})
    history.add(2, {"loss": 1.0, "<accuracy>": 0.5})
    assert cells(history._repr_html_()) == [
        *("epoch", "loss", "<accuracy>", "1", "2", "", "2", "1", "0.5"),
    ]
    points = history._repr_html_().split('points="')[1].split('"')[0].split()
    (x0, y0), (x1, y1) = (map(float, p.split(",")) for p in points)
    assert x0 < x1 and y0 < y1  # time to the right, a lower loss lower
    with pytest.raises(ValueError, match="'f1' is unknown"):
        history["f1"]
    with pytest.raises(TypeError, match="must be numbers"):
        history.add(3, {"loss": "low"})
    assert "no values yet" in svg.curve({"loss": [(1, float("nan"))]})


def test_estimators_keep_histories(capsys):
    estimator = gluon.contrib.estimator
    net = nn.Dense(2)
    data = gluon.data.DataLoader(
        gluon.data.ArrayDataset(nd.ones((8, 3)), nd.zeros((8,))), batch_size=4
    )
    net.initialize()
    est = estimator.Estimator(
        net,
        gluon.loss.SoftmaxCrossEntropyLoss(),
        trainer=gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}),
    )
    kept = estimator.HistoryHandler()
    est.fit(data, epochs=3, event_handlers=[kept])
    losses = kept.history["training softmaxcrossentropyloss"]
    assert [epoch for epoch, _ in losses] == [1, 2, 3] and losses[0][1] > losses[2][1]
    assert "polyline" in kept._repr_html_()
