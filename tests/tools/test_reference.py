"""make docs: a page for every public module, from its docstrings."""

from plait.tools import reference


def test_every_public_module_has_a_page_with_its_names(tmp_path):
    written = reference.write(tmp_path)
    pages = {path.stem: path.read_text() for path in written if path.parent == tmp_path}
    assert {"gluon.nn", "gluon.loss", "gluon.contrib.nn", "metric", "mod", "image"} <= set(pages)
    dense = pages["gluon.nn"].partition("\n## Dense\n")[2]
    assert "| `units` | `int` | required |" in dense.partition("\n## ")[0]
    assert "\n### BaseModule.forward_backward\n" in pages["mod"]
    for name in pages:
        assert name == "index" or f"\n{name}\n" in pages["index"]


def test_what_is_public_is_documented():
    missing = [
        f"{name}.{member}"
        for name, module in reference.public_modules().items()
        for member, value in reference.public(module).items()
        if not (value.__doc__ or "").strip()
    ]
    assert not missing, f"without a docstring: {', '.join(missing)}"
