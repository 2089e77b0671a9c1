"""The pages of the documentation lead where they say, none is left out, and the site can be laid
out from them. `make site` and `make site-check` see the rest."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from plait.tools import docstring

SITE = Path(__file__).resolve().parent.parent / "docs/site"


@pytest.fixture(scope="module")
def site():
    """The modules pages and stage of docs/site, which is no package."""
    loaded = {}
    for name in ("pages", "stage"):
        spec = importlib.util.spec_from_file_location(name, SITE / f"{name}.py")
        sys.modules[name] = loaded[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
    yield loaded
    for name in loaded:
        del sys.modules[name]


def test_links_anchors_and_pictures_of_all_pages(site):
    pages = site["pages"].written()
    assert len(pages) > 50
    # the start page links the reference only on the site, where it is made
    assert [p for page in pages for p in site["pages"].broken_links(page)] == []


@pytest.mark.parametrize(
    "text, problem",
    [
        ("[a](nowhere.md)", "leads to no file"),
        ("![a](nowhere.svg)", "leads to no file"),
        ("[a](guide/ndarray.md#no-such-heading)", "names a heading"),
        ("[a](#none)", "names a heading"),
        ("[a](/docs/guide/ndarray.md)", "leads out of the repository"),
        ("`[a](nowhere.md)` and\n```\n[a](nowhere.md)\n```\n", ""),
        ("[a](guide/ndarray.md) [b](https://example.org) [c](#head)", ""),
    ],
)
def test_broken_links_are_found(site, tmp_path, monkeypatch, text, problem):
    pages = site["pages"]
    (tmp_path / "guide").mkdir()
    (tmp_path / "guide/ndarray.md").write_text("# Arrays\n")
    (tmp_path / "page.md").write_text(f"# Head\n\n{text}\n")
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    found = pages.broken_links(tmp_path / "page.md")
    assert len(found) == bool(problem) and problem in "".join(found)


def test_anchors_are_those_of_forges(site, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b_c`, d!\n\n## Twice\n\n```sh\n# no heading\n```\n\n## Twice\n")
    assert site["pages"].anchors(page) == {"a-b_c-d", "twice", "twice-1"}


def test_readme_links_every_page_of_the_guide(site):
    """The site lists the guide in README's order; a page that README forgets would stand last."""
    pages = site["pages"]
    text = pages.README.read_text()
    missing = [p.name for p in (pages.DOCS / "guide").glob("*.md") if f"guide/{p.name}" not in text]
    assert missing == []


@pytest.fixture(scope="module")
def laid_out(site, tmp_path_factory):
    """The site's pages without the reference, which `make docs` may not have made."""
    folder = tmp_path_factory.mktemp("pages")
    site["stage"].Stage(folder).write(reference=False)
    return folder


def test_every_page_is_laid_out_and_listed(laid_out):
    """Each page is in the list of one other, and every link of a page is to one that is there."""
    tmp_path = laid_out
    there = {p.relative_to(tmp_path).with_suffix("").as_posix() for p in tmp_path.rglob("*.md")}
    listed = []
    for page in tmp_path.rglob("*.md"):
        for entries in re.findall(
            r"```\{toctree\}\n(?::[^\n]*\n)*\n(.*?)```", page.read_text(), re.S
        ):
            folder = page.parent.relative_to(tmp_path)
            listed += [(folder / e).as_posix() for e in entries.split() if e != "self"]
    left_out = there - {"index"} - {p for p in there if p.startswith("reference/")}
    clean = {str(Path(p)) for p in listed}
    assert left_out - clean == set()
    own = [p for p in clean if not p.startswith("reference/")]
    assert set(own) <= there
    assert "guide/ndarray" in clean and "performance" in clean and "examples/train_digits" in there


def test_the_start_page_is_readmes_beginning(laid_out):
    text = (laid_out / "index.md").read_text()
    assert "import plait as mx" in text and "A short tour" in text and "](graph.svg)" in text
    assert "docs/" not in "".join(re.findall(r"\]\(([^)]*)\)", text)).replace("source:docs/", "")


def test_the_picture_of_the_house_has_the_rooms_in_order():
    import floors

    picture = (SITE.parent / "design/pictures/house.svg").read_text()
    assert re.findall(r'class="room"[^>]*>(\w+)<', picture) == list(floors.ROOMS)


def test_docstrings_are_read_as_they_are_written():
    text = """Zeroes elements at random.

    Args:
        x: float array, any shape; a * b stays.
        rate: probability in
            [0, 1). axis: where.
    Returns: array of x's shape.
    Raises: ValueError if rate is outside [0, 1).

    >>> 1 + 1
    2
    """
    told = docstring.read(text, ["x", "rate", "axis"])
    assert told.summary == "Zeroes elements at random."
    assert told.parameters["x"] == r"float array, any shape; a \* b stays."
    assert told.parameters["rate"] == r"probability in \[0, 1)."
    assert told.parameters["axis"] == "where."
    assert [name for name, _ in told.fields] == ["Returns", "Raises"]
    assert told.example == ">>> 1 + 1\n2"
