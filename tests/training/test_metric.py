"""Metrics against NumPy, MXNet's results and their own rules; that update() does not wait."""

import json
import math

import numpy as np
import plait as mx
import pytest
from plait.training import metric

nd = mx.nd
rng = np.random.default_rng(0)
N, CLASSES = 11, 7


def batches(n=4):
    for _ in range(n):
        soft = rng.random((N, CLASSES)).astype("float32")
        yield rng.integers(0, CLASSES, N), soft / soft.sum(axis=1, keepdims=True)


def chosen(label, pred):
    return pred[np.arange(len(label)), label]


def f1_of(label, pred):
    hits = ((label == 1) & (pred == 1)).sum()
    return 2 * hits / ((label == 1).sum() + (pred == 1).sum()) if hits else 0.0


def mcc_of(label, pred):
    return np.corrcoef(label, pred)[0, 1]


CASES = {  # metric, (sum, count) of a batch
    "accuracy": (lambda: metric.Accuracy(), lambda y, p: ((p.argmax(1) == y).sum(), N)),
    "top_k_accuracy_3": (
        lambda: metric.TopKAccuracy(3),
        lambda y, p: ((np.argsort(p, axis=1)[:, -3:] == y[:, None]).any(1).sum(), N),
    ),
    "cross-entropy": (
        lambda: metric.CrossEntropy(),
        lambda y, p: (-np.log(chosen(y, p) + 1e-12).sum(), N),
    ),
    "nll-loss": (
        lambda: metric.NegativeLogLikelihood(),
        lambda y, p: (-np.log(chosen(y, p) + 1e-12).sum(), N),
    ),
    "perplexity": (lambda: metric.Perplexity(None), lambda y, p: (-np.log(chosen(y, p)).sum(), N)),
    "loss": (lambda: metric.Loss(), lambda y, p: (p.sum(), p.size)),
    "torch": (lambda: metric.Torch(), lambda y, p: (p.sum(), p.size)),
    "caffe": (lambda: metric.Caffe(), lambda y, p: (p.sum(), p.size)),
    "f": (
        lambda: metric.CustomMetric(lambda y, p: (y.sum(), 2), name="f"),
        lambda y, p: (y.sum(), 2),
    ),
    "g": (lambda: metric.np(lambda y, p: p.max(), name="g"), lambda y, p: (p.max(), 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_local_and_global_statistics(name):
    make, want = CASES[name]
    m, finish = make(), math.exp if name == "perplexity" else lambda v: v
    assert m.name == name and math.isnan(m.get()[1])
    sums = []
    for k, (label, pred) in enumerate(batches()):
        m.update([nd.array(label)], [nd.array(pred)])
        sums.append(want(label, pred))
        # sums that nobody asked for yet belong to the global statistics alone
        if k == 1:
            m.reset_local()
            assert math.isnan(m.get()[1])
    for got, part in ((m.get(), sums[2:]), (m.get_global(), sums)):
        total, count = np.sum(np.array(part, float), axis=0)
        assert got[0] == name
        assert got[1] == pytest.approx(finish(total / count), rel=1e-5)
    assert m.num_inst == sum(c for _, c in sums[2:])
    m.reset()
    assert math.isnan(m.get_global()[1])


@pytest.mark.parametrize(
    "cls, error",
    [
        (metric.MAE, lambda d: np.abs(d).mean()),
        (metric.MSE, lambda d: (d**2).mean()),
        (metric.RMSE, lambda d: np.sqrt((d**2).mean())),
    ],
)
def test_regression(cls, error):
    m, want = cls(), []
    for _ in range(3):
        label, pred = rng.random(N).astype("float32"), rng.random((N, 1)).astype("float32")
        m.update([nd.array(label)], [nd.array(pred)])
        want.append(error(label[:, None] - pred))
    assert m.get()[1] == pytest.approx(np.mean(want), rel=1e-5)


@pytest.mark.parametrize("cls, score", [(metric.F1, f1_of), (metric.MCC, mcc_of)])
def test_binary_metrics(cls, score):
    macro, micro, seen = cls(), cls(average="micro"), []
    for _ in range(3):
        label, pred = rng.integers(0, 2, 30), rng.random((30, 2)).astype("float32")
        seen.append((label, pred.argmax(1)))
        for m in (macro, micro):
            m.update([nd.array(label)], [nd.array(pred)])
    assert macro.get()[1] == pytest.approx(np.mean([score(*s) for s in seen]))
    assert micro.get()[1] == pytest.approx(score(*np.concatenate(seen, axis=1)))
    assert micro.num_inst == 90 and macro.num_inst == 3
    micro.reset_local()
    micro.update([nd.array(seen[0][0])], [nd.array(np.eye(2)[seen[0][1]])])
    assert micro.get()[1] == pytest.approx(score(*seen[0]))
    with pytest.raises(ValueError, match="currently only supports binary classification"):
        macro.update([nd.array([0, 1, 2])], [nd.ones((3, 2))])
    with pytest.raises(ValueError, match="average must be"):
        cls(average="none")


def f1_and_mcc_cases():
    """Updates with several arrays (devices): lists of labels and predictions; MXNet's values."""
    two = [[[1, 0], [1, 0]], [[[0.1, 0.9], [0.5, 0.5]], [[0.85, 0.15], [1, 0]]]]
    one = [[[0], [1]], [[[0.6, 0.4]], [[0.2, 0.8]]]]
    return [two, one]


@pytest.mark.parametrize(
    "cls, values", [(metric.F1, (2 / 3, 0.8333333)), (metric.MCC, (0.5773503, 0.7886751))]
)
def test_macro_is_one_value_for_all_arrays_of_an_update(cls, values):
    m = cls(average="macro")
    for n, ((labels, preds), value) in enumerate(zip(f1_and_mcc_cases(), values), 1):
        m.update([nd.array(x) for x in labels], [nd.array(x) for x in preds])
        assert m.num_inst == n
        assert m.get()[1] == m.get_global()[1] == pytest.approx(value, rel=1e-6)


def test_metrics_are_recreated_from_json():
    for m in (
        metric.create("acc", axis=0),
        metric.create("top_k_acc", top_k=3),
        metric.F1(average="micro"),
        metric.create(["mae", metric.Perplexity(ignore_label=3)]),
    ):
        for config in (m.get_config(), json.dumps(m.get_config())):
            again = metric.create(config)
            assert type(again) is type(m) and again.get_config() == m.get_config()
    assert metric.create('["acc", {"axis": 0}]').axis == 0


def test_pcc_is_mcc_for_two_classes_and_grows_with_the_classes():
    m = metric.PCC()
    label, pred = rng.integers(0, 2, 50), rng.random((50, 2)).astype("float32")
    m.update([nd.array(label)], [nd.array(pred)])
    assert m.get()[1] == pytest.approx(mcc_of(label, pred.argmax(1)))
    m.update([nd.array([0, 4, 4, 2])], [nd.array(np.eye(5)[[0, 4, 4, 2]])])
    assert mcc_of(label, pred.argmax(1)) < m.get()[1] < 1
    perfect = metric.PCC()
    perfect.update([nd.array([0, 1, 2])], [nd.array(np.eye(3))])
    assert perfect.get()[1] == pytest.approx(1)


def test_pearson():
    macro, micro, seen = metric.PearsonCorrelation(), metric.PearsonCorrelation(average="micro"), []
    for _ in range(3):
        a, b = rng.random((9, 1)).astype("float32"), rng.random((9, 1)).astype("float32")
        seen.append((a.ravel(), b.ravel()))
        for m in (macro, micro):
            m.update([nd.array(a)], [nd.array(b)])
    assert macro.get()[1] == pytest.approx(np.mean([np.corrcoef(*s)[0, 1] for s in seen]))
    assert micro.get()[1] == pytest.approx(np.corrcoef(*np.concatenate(seen, axis=1))[0, 1])


def test_perplexity_ignores_a_label():
    m = metric.Perplexity(2)
    label, pred = np.array([0, 2, 1, 2]), np.array([[0.5, 0.2, 0.3]] * 4, "float32")
    m.update([nd.array(label)], [nd.array(pred)])
    assert m.num_inst == 2
    assert m.get()[1] == pytest.approx(math.exp(-(math.log(0.5) + math.log(0.2)) / 2), rel=1e-5)


def test_accuracy_with_classes_on_another_axis_and_with_classes_given():
    m = metric.Accuracy(axis=2)
    pred = rng.random((3, 5, 4)).astype("float32")
    m.update(nd.array(pred.argmax(2)), nd.array(pred))
    assert m.get() == ("accuracy", 1.0)
    m.update([nd.array([1, 2])], [nd.array([1, 3])])
    assert m.num_inst == 17 and m.sum_metric == 16
    numpy_too = metric.Accuracy()
    numpy_too.update([np.array([0, 1])], [np.array([[0.9, 0.1], [0.8, 0.2]], "float32")])
    assert numpy_too.get()[1] == 0.5


def test_update_does_not_wait_for_the_engine():
    m = metric.create(["acc", "ce", "mse", metric.Loss()])
    asked = []
    original = nd.NDArray.asnumpy
    label, pred = nd.array([0, 1]), nd.array([[0.9, 0.1], [0.2, 0.8]])
    nd.NDArray.asnumpy = lambda self: asked.append(self.shape) or original(self)
    try:
        for _ in range(metric.base.MAX_PENDING):
            for one in (m.get_metric(0), m.get_metric(1), m.get_metric(3)):
                one.update([label], [pred])
        assert asked == []
        assert m.get_metric(0).get()[1] == 1.0
    finally:
        nd.NDArray.asnumpy = original
    assert len(asked) == metric.base.MAX_PENDING
    for _ in range(5 * metric.base.MAX_PENDING):
        m.get_metric(0).update([label], [pred])
    assert len(m.get_metric(0)._pending) <= metric.base.MAX_PENDING
    assert m.get_metric(0).num_inst == 12 * metric.base.MAX_PENDING


def test_counts_stay_exact():
    m = metric.Accuracy()
    m.sum_metric = m.num_inst = 2**24
    m.update([nd.array([1])], [nd.array([1])])
    assert m.sum_metric == m.num_inst == 2**24 + 1


def test_metric_subclass_in_mxnets_old_style():
    class Count(metric.EvalMetric):
        def update(self, labels, preds):
            self.sum_metric += 3.0
            self.num_inst += 1

    m = Count("count")
    m.update(None, None)
    m.update(None, None)
    assert m.get() == ("count", 3.0) == m.get_global()
    with pytest.raises(TypeError, match="must define update"):
        metric.EvalMetric("x").update([], [])


def test_composite():
    m = metric.create(["acc", metric.CrossEntropy()])
    m.add("mse")
    assert (
        isinstance(m, metric.CompositeEvalMetric)
        and str(m.get_metric(2)) == "EvalMetric: {'mse': nan}"
    )
    m.get_metric(2).update([nd.array([1.0])], [nd.array([3.0])])
    names, values = m.get()
    assert names == ["accuracy", "cross-entropy", "mse"] and values[2] == 4.0
    assert m.get_name_value()[2] == m.get_global_name_value()[2] == ("mse", 4.0)
    m.reset_local()
    assert math.isnan(m.get()[1][2]) and m.get_global()[1][2] == 4.0
    with pytest.raises(ValueError, match="Metric index 3 is out of range 0 and 3"):
        m.get_metric(3)


def test_update_dict_picks_names():
    m = metric.Accuracy(output_names=["o"], label_names=["l"])
    m.update_dict(
        {"l": nd.array([0, 1]), "other": None}, {"o": nd.array([[1, 0.0], [1, 0]]), "rest": None}
    )
    assert m.get() == ("accuracy", 0.5)


def test_create_and_configuration():
    names = (
        "acc",
        "accuracy",
        "ce",
        "crossentropy",
        "f1",
        "mcc",
        "pcc",
        "mae",
        "mse",
        "rmse",
        "nll_loss",
        "loss",
        "pearsonr",
        "torch",
        "caffe",
        "composite",
        "negativeloglikelihood",
        "pearsoncorrelation",
    )
    assert all(isinstance(metric.create(n), metric.EvalMetric) for n in names)
    assert metric.create("top_k_acc", top_k=2).get_config() == {
        "top_k": 2,
        "metric": "TopKAccuracy",
        "name": "top_k_accuracy_2",
        "output_names": None,
        "label_names": None,
    }
    for m in (metric.Accuracy(axis=2), metric.Perplexity(None), metric.CrossEntropy(eps=1e-3)):
        config = m.get_config()
        assert metric.create(config.pop("metric"), **config).get_config() == m.get_config()
    assert metric.create(lambda y, p: 1.0).name == "custom(<lambda>)"

    @metric.register
    @metric.alias("mine")
    class Mine(metric.EvalMetric):
        def __init__(self):
            super().__init__("mine")

    assert isinstance(metric.create("mine"), Mine)
    del metric.base.REGISTRY["mine"]


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (
            lambda: metric.create("nope"),
            ValueError,
            "metric 'nope' is unknown, expected one of .*accuracy",
        ),
        (
            lambda: metric.create(3),
            TypeError,
            "must be a name, a function, a list or an EvalMetric, got int",
        ),
        (lambda: metric.register(int), TypeError, "must derive from EvalMetric, got int"),
        (lambda: metric.TopKAccuracy(), ValueError, "top_k must be above 1, got 1"),
        (
            lambda: metric.Accuracy().update([nd.ones(3)], [nd.ones((4, 2))]),
            ValueError,
            "Shape of labels .*3.* does not match shape of predictions .*4",
        ),
        (
            lambda: metric.Accuracy().update([nd.ones(3)], [nd.ones(4)]),
            ValueError,
            r"labels, or classes on axis 1, got shape \(4,\)",
        ),
        (
            lambda: metric.Accuracy().update([nd.ones(3)] * 2, [nd.ones((3, 2))]),
            ValueError,
            "Shape of labels 2 does not match",
        ),
        (
            lambda: metric.CrossEntropy().update([nd.ones(3)], [nd.ones((2, 3))]),
            ValueError,
            r"predictions must be \(labels, classes\)",
        ),
        (
            lambda: metric.Perplexity(None).update([nd.ones(3)], [nd.ones((2, 3))]),
            ValueError,
            "do not fit predictions",
        ),
        (
            lambda: metric.CustomMetric(len).get_config(),
            NotImplementedError,
            "cannot be serialized",
        ),
    ],
)
def test_wrong_use(wrong, error, message):
    with pytest.raises(error, match=message):
        wrong()


def test_a_subclass_may_reset_by_itself():
    class PerTask(mx.metric.EvalMetric):  # the multi-task example's metric
        def __init__(self, n):
            self.n = n
            super().__init__("tasks")

        def reset(self):
            self.num_inst, self.sum_metric = [0] * self.n, [0.0] * self.n

        def update(self, labels, preds):
            for i in range(self.n):
                self.sum_metric[i] += float((preds[i] == labels[i]).sum().asscalar())
                self.num_inst[i] += labels[i].size

        def get(self):
            return ["a", "b"], [s / n for s, n in zip(self.sum_metric, self.num_inst)]

    metric = PerTask(2)
    metric.update([nd.array([1, 2]), nd.array([3, 4])], [nd.array([1, 0]), nd.array([3, 4])])
    assert metric.get() == (["a", "b"], [0.5, 1.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.metric.Accuracy(),
        lambda: mx.metric.F1(average="micro"),
        lambda: mx.metric.F1(),
        lambda: mx.metric.MCC(average="micro"),
        lambda: mx.metric.PCC(),
        lambda: mx.metric.CrossEntropy(),
    ],
)
def test_the_counts_of_two_ranks_together_are_those_of_one_process(make):
    generator = np.random.default_rng(4)
    y = generator.integers(0, 2, (4, 30))
    p = generator.dirichlet([1, 1], (4, 30))
    whole, ranks = make(), [make(), make()]
    for i in range(4):
        whole.update([nd.array(y[i])], [nd.array(p[i])])
        ranks[i % 2].update([nd.array(y[i])], [nd.array(p[i])])
    counted = [m.statistics() for m in ranks]
    ranks[1].combine(counted)
    assert ranks[1].get()[1] == pytest.approx(whole.get()[1], rel=1e-12)
    assert ranks[1].get_global()[1] == pytest.approx(whole.get_global()[1], rel=1e-12)


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_the_correlation_of_two_ranks_is_that_of_numpy(average):
    generator = np.random.default_rng(5)
    x = generator.standard_normal((3, 40)).astype("float32")
    y = (x + generator.standard_normal((3, 40))).astype("float32")
    ranks = [mx.metric.PearsonCorrelation(average=average) for _ in range(3)]  # the last is empty
    for i in range(3):
        ranks[i % 2].update([nd.array(x[i])], [nd.array(y[i])])
    ranks[0].combine([m.statistics() for m in ranks])
    expected = (
        np.corrcoef(x.ravel(), y.ravel())[0, 1]
        if average == "micro"
        else np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(x, y)])
    )
    assert ranks[0].get()[1] == pytest.approx(expected, rel=1e-6)
