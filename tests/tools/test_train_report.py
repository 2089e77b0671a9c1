"""report.html and what is in it: the confusion matrix, charts, the comparison of speeds."""

import contextlib
import io
import re
from html.parser import HTMLParser

import numpy as np
import plait as mx
import pytest
from plait import __main__ as cli
from plait import nd
from plait.gluon import nn
from plait.tools import train
from plait.tools.train import report, speed
from plait.tools.train.charts import line_chart, nice_step
from plait.tools.train.confusion import confusion
from plait.tools.train.page import STYLE, inline_svg
from sklearn import metrics

VOID = {"meta", "img", "br", "input", "hr"}


class Checker(HTMLParser):
    """Raises if tags are not closed in order; collects ids, tags and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.tags, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [v for k, v in attrs if k == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [v for k, v in attrs if k == "id"]

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> in {self.open[-3:]}"

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Of a short run with a class name that must be escaped; `said` is what it printed."""
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(io.StringIO()) as out:
        patched.setattr(speed, "ROW_SECONDS", 0.02)
        digits = train.named.DATASETS["digits"]
        classes = ("<zero> & co", *digits.classes[1:])
        changed = train.named.Named(digits.make, classes, 1)
        patched.setitem(train.named.DATASETS, "digits", changed)
        options = "train --data digits --model mlp --epochs 2 --batch-size 128 --lr 0.003 --out"
        assert cli.main([*options.split(), str(folder)]) == 0
    (folder / "said").write_text(out.getvalue())
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return (folder / "report.html").read_text()


def test_a_run_writes_checkpoint_model_and_report(folder):
    text = (folder / "said").read_text()
    assert "mlp on digits: 1437 training and 360 validation pictures 8x8x1, 10 classes" in text
    assert "epoch 2/2  loss" in text and f"open {folder / 'report.html'} in a browser" in text
    assert (folder / "mlp-digits.ckpt").exists()
    model = folder / "mlp-digits"
    net = mx.gluon.SymbolBlock.imports(
        str(model / "model-symbol.json"), ["data"], str(model / "model-0000.params")
    )
    assert net(nd.zeros((3, 8, 8, 1), dtype="uint8")).shape == (3, 10)


def test_the_page_is_well_formed(page):
    found = Checker(page)
    assert len(found.ids) == len(set(found.ids)) > 10
    text = " ".join(found.words)
    for title in ("Learning", "Eager and hybridized", "What it confuses", "Mistakes", "Going on"):
        assert title in text
    assert "<zero> & co" in text and "<zero>" not in page
    images = [a for tag, a in found.tags if tag == "img"]
    assert 1 <= len(images) <= 24 and all(a["alt"] for a in images)


def test_the_page_needs_nothing_else(page):
    assert not re.search(r"https?:|//[a-z]", page)
    tags = Checker(page).tags
    assert not {tag for tag, _ in tags} & {"script", "link", "iframe", "object", "base"}
    sources = [a[k] for _, a in tags for k in ("src", "href", "data") if k in a]
    assert all(s.startswith(("data:image/", "#")) for s in sources)
    assert "url(" not in STYLE and "@import" not in STYLE


def test_the_numbers_are_those_of_the_run(page):
    cells = [int(n) for n in re.findall(r'<td[^>]*style="--s:[\d.]+">(\d+)</td>', page)]
    counts = np.array(cells).reshape(10, 10)
    assert counts.sum() == 360
    assert f"<b>{np.trace(counts) / 360:.1%}</b>" in page
    assert page.count('class="speed"') == 4


def test_confusion_is_scikit_learns():
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 7, 200), rng.random((200, 7))
    labels[labels == 3] = 2  # a class without a picture
    found = confusion(labels, scores)
    predicted = scores.argmax(axis=1)
    wanted = metrics.confusion_matrix(labels, predicted, labels=range(7))
    assert np.array_equal(found.counts, wanted)
    assert found.accuracy == metrics.accuracy_score(labels, predicted)
    assert len(found.mistakes) == (labels != predicted).sum()
    first = found.mistakes[0]
    assert first.probability == max(scores[labels != predicted].max(axis=1))
    assert (first.label, first.predicted) == (labels[first.place], predicted[first.place])
    pairs = found.pairs()
    assert [n for _, _, n, _ in pairs] == sorted((n for *_, n, _ in pairs), reverse=True)
    assert sum(n for *_, n, _ in pairs) == len(found.mistakes)


def test_no_mistake_is_said():
    found = confusion(np.arange(3), np.eye(3))
    assert found.accuracy == 1 and not found.pairs()
    assert "none" in report.mistakes(found, train.named.load("digits"))
    assert "most confused" not in report.confused(found, list("abc"))


def test_many_classes_have_no_matrix():
    n = report.MATRIX_CLASSES + 1
    found = confusion(np.arange(n), np.roll(np.eye(n), 1, axis=1))
    assert "matrix" not in report.confused(found, [f"c{i}" for i in range(n)])


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0, 2.0], [float("nan"), 1e-9], [float("inf")]])
def test_charts_of_few_equal_or_infinite_values(values):
    x = list(range(1, len(values) + 1))
    text = line_chart("a < b", x, {"line": values}, "{:g}".format)
    Checker(text)
    numbers = [float(v) for v in re.findall(r'(?:cx|cy|x1|y1)="([^"]+)"', text)]
    assert np.isfinite(numbers).all() and min(numbers) >= 0 and max(numbers) <= 460


def test_steps_of_an_axis_are_round():
    for span in (0.003, 0.7, 1, 4.9, 20, 33333):
        step = nice_step(span)
        assert f"{step:e}"[0] in "125" and 2 <= span / step <= 5


def test_pictures_in_a_page_do_not_change_each_other():
    text = """<?xml version="1.0"?><!-- a --><svg xmlns="http://w3" id="a"><style>
        <![CDATA[text{fill:red}]]></style>
        <a xlink:title="x &amp; y"><use xlink:href='#a'/></a></svg>"""
    assert re.sub(r"\s*\n\s*", "", inline_svg(text, "p")) == (
        '<div id="p" class="scroll drawing"><svg id="p-a"><style>#p{text{fill:red}}</style>'
        "<a><title>x &amp; y</title><use href='#p-a'/></a></svg></div>"
    )


def test_steps_are_compared_in_turns_and_training_leaves_the_other_network_alone(monkeypatch):
    monkeypatch.setattr(speed, "ROW_SECONDS", 0)
    order = []

    def make(hybridize):
        return lambda: order.append(hybridize)

    row = speed.compare("nothing", make)
    turns = order[2 * speed.WARM_UP_CALLS + 2 :]
    assert len(row.eager) == len(row.hybridized) == speed.MIN_ROUNDS
    assert turns == [False, True, True, False] * 2 + [False, True]

    mx.seed_all(1)
    x, labels = nd.ones((4, 3)), nd.array([0, 1, 0, 1])
    nets = []
    for hybridize in (False, True):
        mx.seed_all(1)
        net = nn.Dense(2, in_units=3)
        net.initialize(mx.init.Xavier())
        before = net.weight.data().asnumpy()
        speed.training_step(net, x, labels, hybridize)()
        assert not np.array_equal(net.weight.data().asnumpy(), before)
        nets.append(net)
    assert np.allclose(*(n.weight.data().asnumpy() for n in nets), atol=1e-6)


def test_the_timeline_is_shown_where_the_network_has_one():
    class Drawn:
        svg = '<?xml?><svg xmlns="http://w3"><g id="g"/></svg>'

    class Net:
        def timeline(self, x, loss, labels, backward):
            return Drawn

    x, y = nd.zeros((1, 2)), nd.zeros((1,))
    assert '<g id="timeline-g"/>' in report.timeline(Net(), x, y)[0]
