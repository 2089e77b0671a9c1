"""print_summary and plot_network."""

from pathlib import Path

import plait as mx
import pytest
from plait.kernels.record import REGISTRY, REQUIRED
from plait.symbol import picture as pictures

sym = mx.sym
FIXTURES = Path(__file__).parent.parent / "fixtures"


def net():
    with mx.name.NameManager():
        x = sym.Convolution(sym.var("data"), kernel=(3, 3), num_filter=4, name="conv")
        x = sym.BatchNorm(sym.LeakyReLU(x, name="act"), name="bn")
        return sym.SoftmaxOutput(sym.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")


def test_summary(capsys):
    mx.viz.print_summary(net(), shape={"data": (2, 3, 8, 8)})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["conv(Convolution)", "4x6x6", "112", "data"] in lines and [
        "bn(BatchNorm)",
        "4x6x6",
        "8",
        "act",
    ] in lines
    assert ["Total", "params:", str(112 + 8 + 435)] in lines


def test_summary_counts_packed_parameters(capsys):
    mx.viz.print_summary(str(FIXTURES / "lstm-symbol.json"), shape=(7, 3))
    assert "Total params: 25522" in capsys.readouterr().out


def test_drawing_has_shapes_and_hides_weights():
    picture = mx.viz.plot_network(
        net(), shape={"data": (2, 3, 8, 8)}, node_attrs={"fontsize": "20"}
    )
    assert "2\u00d74\u00d76\u00d76" in picture.source and "conv_weight" not in picture.source
    assert "num_filter 4" in picture.source and "fontsize=20" in picture.source
    assert "conv_weight" in mx.viz.plot_network(net(), hide_weights=False).source
    with pytest.raises(mx.MXNetError, match="Convolution"):
        mx.viz.plot_network(net(), shape={"data": (2, 3)})
    with pytest.raises(ValueError, match="'nope' is no variable"):
        mx.viz.plot_network(net(), shape={"nope": (2, 3)})
    with pytest.raises(TypeError, match="must be a Symbol, a Block or the path"):
        mx.viz.plot_network(3)


def repeated(n):
    x = sym.var("data")
    for _ in range(n):
        x = x + sym.relu(sym.FullyConnected(x, num_hidden=4, flatten=False))
    return sym.tanh(x)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_equal_blocks_are_drawn_once(n):
    source = mx.viz.plot_network(repeated(n), shape=(2, 4), collapse=True).source
    assert source.count("<B>FullyConnected</B>") == 1 and (f"\u00d7 {n}" in source) == (n > 1)
    assert mx.viz.plot_network(repeated(n), shape=(2, 4)).source.count("<B>FullyConnected</B>") == n
    assert source.count("->") == 6  # data to both, three inside, one out, the output


def test_blocks_of_other_shape_are_not_merged():
    x = sym.FullyConnected(sym.relu(sym.var("data")), num_hidden=4)
    x = sym.FullyConnected(sym.relu(x), num_hidden=5)
    assert "\u00d7 2" not in mx.viz.plot_network(x, shape=(2, 4), collapse=True).source


def test_pictures(tmp_path):
    picture = mx.viz.plot_network(net(), title="my net")
    path = picture.render(str(tmp_path / "net"), cleanup=True)
    assert (
        path.endswith("net.svg")
        and "<svg" in Path(path).read_text()
        and not (tmp_path / "net").exists()
    )
    assert picture.pipe("png").startswith(b"\x89PNG")
    assert "<svg" in net()._repr_mimebundle_()["image/svg+xml"]
    with pytest.raises(mx.MXNetError, match="cannot make format 'nonsense'"):
        picture.pipe("nonsense")


def test_without_graphviz_the_text_is_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "command", lambda: None)
    picture = mx.viz.plot_network(net())
    with pytest.raises(
        mx.MXNetError, match="pip install graphviz-pure[^$]*the drawing's text is in"
    ):
        picture.render(str(tmp_path / "net"))
    assert "digraph" in (tmp_path / "net").read_text()
    assert "digraph" in picture._repr_mimebundle_()["text/plain"]


def test_block_is_drawn():
    from plait.gluon import nn

    block = nn.HybridSequential()
    block.add(nn.Dense(4, activation="relu"), nn.Dense(2))
    block.initialize()
    assert (
        mx.viz.plot_network(block, shape={"data": (2, 3)}).source.count("<B>FullyConnected</B>")
        == 2
    )


def test_every_operator_is_drawn():
    """Labels, colours and edges of each record that can be composed from variables."""
    drawn = 0
    for name, op in REGISTRY.items():
        if (
            name != op.name
            or not op.samples
            or any(
                p.default is REQUIRED
                and p.name not in op.samples[0].attrs
                and p.name != op.variadic_key
                for p in op.params
            )
        ):
            continue
        n = len(op.samples[0].inputs)
        given = {k: v for k, v in op.samples[0].attrs.items() if k != op.variadic_key}
        if op.n_outputs == 0:  # no symbol
            continue
        s = sym.symbol.apply(op, name.lower(), [sym.var(f"v{i}") for i in range(n)], given)
        source = mx.viz.plot_network(s, hide_weights=False).source
        n += len(s.list_outputs())
        assert f"<B>{name.lstrip('_')}</B>" in source and source.count("->") == n, name
        drawn += 1
    assert drawn > 200
