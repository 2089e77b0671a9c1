"""make docs: a page for every operator, from its record, and for every public module, from its
docstrings."""

import re

from plait import __main__ as cli
from plait.kernels.record import REGISTRY
from plait.kernels.traits import Front
from plait.tools import reference


def test_the_reference_has_every_operator_module_and_name(tmp_path, capsys):
    """One test: writing it takes seconds."""
    assert cli.main(["docs", str(tmp_path)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(list(tmp_path.rglob("*.md")))

    text = (tmp_path / "operators/index.md").read_text()
    names = {op.name for op in REGISTRY.values() if not op.has(Front)}  # those are loaded late
    assert not [name for name in names if f"`{name}`" not in text and f"]({name}.md)" not in text]
    assert re.search(r"^\| \[`nd.relu`\]\(relu.md\) \| yes \| C \|", text, re.M)
    page = (tmp_path / "operators/Convolution.md").read_text()
    assert "| float32 | float32 | C | CUDA |" in page and "kernels/ops/conv.py#L" in page
    assert "(data (2,3,7), weight (4,3,3), bias (4,), kernel=(3,), num_filter=4) -> (2,4,5)" in page

    pages = {path.stem: path.read_text() for path in tmp_path.glob("*.md")}
    assert {"gluon.nn", "gluon.loss", "gluon.contrib.nn", "metric", "mod", "image"} <= set(pages)
    dense = pages["gluon.nn"].partition("\n## Dense\n")[2]
    assert "| `units` | `int` | required |" in dense.partition("\n## ")[0]
    assert "| `channels` | `int` | required |" in pages["gluon.nn"]
    assert "\n### BaseModule.forward_backward\n" in pages["mod"]
    for name in pages:
        assert name == "index" or f"\n{name}\n" in pages["index"]
    assert "gluon.nn.Conv2D gluon.nn conv2d" in (tmp_path / "names.txt").read_text()


def test_what_is_public_is_documented():
    missing = [
        f"{name}.{member}"
        for name, module in reference.public_modules().items()
        for member, value in reference.public(module).items()
        if not (value.__doc__ or "").strip()
    ]
    assert not missing, f"without a docstring: {', '.join(missing)}"
