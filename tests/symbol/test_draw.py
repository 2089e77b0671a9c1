"""What drawings hold: every operator once, folded units, frames, bodies, text that fits."""

import re
import xml.etree.ElementTree as ET
from functools import cache
from pathlib import Path

import matplotlib
import plait as mx
import pytest
from PIL import ImageFont
from plait import gluon
from plait.gluon import nn, rnn
from plait.gluon.model_zoo import vision
from plait.graph.graph import topological
from plait.symbol import draw, text_width, viz
from plait.symbol.blocks import Calls

FONTS = Path(matplotlib.__file__).parent / "mpl-data/fonts/ttf"


class Looped(nn.HybridBlock):
    """A loop, a while and a branch."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.cell = nn.Dense(8, flatten=False)

    def hybrid_forward(self, F, x):
        step = lambda x, s: (F.relu(x + s), F.tanh(self.cell(x + s)))
        out, state = F.contrib.foreach(step, x, F.zeros((2, 8)))
        _, last = F.contrib.while_loop(
            lambda i, s: i < 5,
            lambda i, s: (s, [i + 1, s * 2]),
            [F.zeros((1,)), state],
            max_iterations=6,
        )
        big = F.contrib.cond(F.sum(last[1]) > 10, lambda: F.sqrt(last[1]), lambda: last[1] * 3)
        return F.sum(out) + big


class Unrolled(nn.HybridBlock):
    def __init__(self, cell, steps):
        super().__init__()
        self.steps = steps
        with self.name_scope():
            self.cell = cell

    def hybrid_forward(self, F, x):
        return self.cell.unroll(self.steps, x, layout="TNC", merge_outputs=True)[0]


def language_model():
    net = nn.HybridSequential()
    net.add(nn.Embedding(50, 8), nn.Dropout(0.1), rnn.LSTM(8, 2), nn.Dense(50, flatten=False))
    return net


NETS = {
    "residual": (lambda: vision.resnet50_v1(classes=4), (1, 3, 32, 32)),
    "inverted": (lambda: vision.mobilenet_v2_0_25(classes=4), (1, 3, 32, 32)),
    "words": (language_model, (7, 3)),
    "loops": (Looped, (7, 2, 8)),
    "lstm": (lambda: Unrolled(rnn.LSTMCell(4), 35), (35, 2, 3)),
    "gru": (lambda: Unrolled(rnn.GRUCell(4), 9), (9, 2, 3)),
}


@cache
def graph(name):
    """(outputs, the blocks of its nodes, the shape of data) of a network."""
    make, shape = NETS[name]
    net = make()
    net.initialize()
    with Calls(net) as calls:
        symbol = viz._symbol(net, {"data": shape})
    return symbol._outputs, calls.paths(), {"data": shape}


def drawn(name, **how):
    outputs, paths, shapes = graph(name)
    return draw.draw(outputs, shapes, paths=paths, **how)


@pytest.mark.parametrize("from_names", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_drawn_and_folded_are_all_operators(name, from_names):
    outputs, paths, shapes = graph(name)
    known = draw.shapes_of(outputs, shapes)
    hidden = draw.hidden_nodes(outputs)
    shown = [n for n in topological(outputs) if n not in hidden]
    root, folding = draw.units_of(
        outputs, shown, known, hidden, True, None if from_names else paths
    )
    visible = list(root.nodes())
    assert len(visible) == len(set(visible))
    assert {*visible, *folding.stand_in} == set(shown)
    assert not {*visible} & {*folding.stand_in}

    def count(unit):
        inside = sum(count(i) if isinstance(i, draw.Unit) else 1 for i in unit.items)
        return inside * unit.times

    assert count(root) == len(shown)
    for node, twin in folding.stand_in.items():
        assert node.op is twin.op and node.attrs == twin.attrs


def test_units_are_those_of_the_network():
    source = drawn("residual", collapse=True).source
    blocks = [3, 4, 6, 3]  # the first of a stage has a convolution in its shortcut
    titles = re.findall(r"features\.(\d)\.\d BottleneckV1(?:  \u00d7 (\d))?<", source)
    assert titles == [(str(4 + i), t) for i, n in enumerate(blocks) for t in ("", str(n - 1))]
    assert "cell LSTMCell  \u00d7 35" in drawn("lstm", collapse=True).source
    assert "cell GRUCell  \u00d7 9" in drawn("gru", collapse=True).source
    assert "\u00d7 35" not in drawn("lstm").source


def test_units_by_names_begin_where_blocks_begin(tmp_path):
    outputs, _, shapes = graph("residual")
    mx.sym.Group([mx.sym.Symbol([v]) for v in outputs]).save(str(tmp_path / "net.json"))
    source = mx.viz.plot_network(tmp_path / "net.json", shape=shapes, collapse=True).source
    unit = source[source.index("\u00d7 2") :]
    assert re.findall("<B>(.*?)</B>", unit)[:3] == ["Convolution", "BatchNorm", "Activation"]
    assert [int(n) for n in re.findall("\u00d7 (\\d)<", source)] == [2, 3, 5, 2]


def test_steps_that_differ_are_not_folded():
    class Uneven(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(4, flatten=False)

        def hybrid_forward(self, F, x):
            steps = [x]
            for i in range(4):  # the last step reads the first value, not the one before it
                steps.append(F.relu(self.dense(F.tanh(steps[0 if i == 3 else -1]))))
            return steps[3] + steps[4]

    net = Uneven()
    net.initialize()
    source = mx.viz.plot_network(net, shape=(2, 4), collapse=True).source
    assert source.count("<B>tanh</B>") == 2 and "\u00d7 3" in source


def test_a_recurrent_layer_is_one_box():
    source = drawn("words").source
    assert re.findall("<B>(.*?)</B>", source) == ["Embedding", "Dropout", "RNN", "FullyConnected"]
    assert source.count("->") == 5


def test_bodies_of_control_flow_are_drawn():
    source = drawn("loops").source
    for text in ("foreach  _foreach0  \u00d7 7", "\u2264 6", ">while<", ">do<", ">if<", ">else<"):
        assert text in source
    names = re.findall("<B>(.*?)</B>", source)
    for op in ("relu", "tanh", "FullyConnected", "lesser_scalar", "sqrt", "mul_scalar"):
        assert op in names
    assert "_weight" not in source and "foreach</B>" not in source


def test_labels_say_what_is_not_the_default():
    x = mx.sym.transpose(mx.sym.var("data"), axes=(0, 2, 1, 3))
    x = mx.sym.Convolution(x, kernel=(3, 3), num_filter=4, pad=(1, 1), layout="NCHW")
    source = mx.viz.plot_network(x, shape=(1, 4, 3, 8)).source
    assert "axes (0, 2, 1, 3)" in source and "kernel 3\u00d73, num_filter 4, pad 1\u00d71" in source
    assert "layout" not in "".join(re.findall("<TABLE.*?</TABLE>", source))
    shapes = [s.replace("\u00d7", "x") for s in re.findall(r">([\d\u00d7]+)<", source)]
    assert shapes == ["1x4x3x8", "1x3x4x8", "1x4x4x8"]


@cache
def font(size, bold):
    return ImageFont.truetype(FONTS / f"DejaVuSans{'-Bold' * bold}.ttf", size * 10)


@pytest.mark.parametrize("name", ["residual", "words", "loops"])
def test_text_fits_its_box(name):
    """In the SVG, in the widest font that a browser may take."""
    svg = drawn(name, collapse=True).pipe("svg")
    space = "{http://www.w3.org/2000/svg}"
    nodes = 0
    for group in ET.fromstring(svg).iter(f"{space}g"):
        if group.get("class") not in ("node", "cluster"):
            continue
        shape = next(group.iter(f"{space}path"))
        across = [float(x) for x in re.findall(r"-?[\d.]+", shape.get("d"))[::2]]
        for text in group.iter(f"{space}text"):
            bold = text.get("font-weight") == "bold"
            size = float(text.get("font-size"))
            width = font(int(size), bold).getlength(text.text) / 10
            x = float(text.get("x"))
            left = x - width / 2 if text.get("text-anchor") == "middle" else x
            assert min(across) <= left and left + width <= max(across), text.text
            assert "Arial" in text.get("font-family") and "sans-serif" in text.get("font-family")
            nodes += 1
    assert nodes > 5


def test_widths_are_those_of_the_font():
    for bold in (False, True):
        for text in (
            "FullyConnected",
            "kernel 3\u00d73, stride 2\u00d72",
            "".join(map(chr, range(32, 127))),
        ):
            real = font(12, bold).getlength(text) / 10
            assert real <= text_width.text_width(text, 12, bold) <= real * 1.04 + 1


def test_names_with_markup():
    x = mx.sym.relu(mx.sym.var('a<b>&"c'), name='x<y>&"z')
    assert b"<svg" in mx.viz.plot_network(x).pipe("svg")


def test_shared_blocks_and_two_outputs():
    block = nn.Dense(4, flatten=False)

    class Twice(nn.HybridBlock):
        def __init__(self):
            super().__init__()
            self.a = block

        def hybrid_forward(self, F, x):
            y = self.a(x)
            return y, self.a(y)

    net = Twice()
    net.initialize()
    source = mx.viz.plot_network(net, shape=(2, 4)).source
    assert source.count("_output<") == 2 and source.count("->") == 4
    assert not net.a._forward_hooks and not net._forward_pre_hooks  # all are detached
    assert isinstance(net, gluon.HybridBlock)
