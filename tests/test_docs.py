"""README, guides and docstrings: every Python block and every example in them runs and prints what
it says."""

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import plait
import pytest
from plait import autograd, gluon, nd

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]
CONTRIBUTING = ROOT / "docs/contributing.md"
DESIGN = sorted((ROOT / "docs/design").rglob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.M | re.S)
SAID = re.compile(r"^\s*print\(.*\)  # (.*)$", re.M)  # print(1 + 1)  # 2
MODULES = [
    m.name
    for m in pkgutil.walk_packages(plait.__path__, "plait.", onerror=lambda name: None)
    if not re.search(
        r"\.(tests|docs|build|setup|__main__|_core|_array|\w*with_\w+)|ffi_build", m.name
    )
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict = {"__name__": "__main__"}
    text = page.read_text()
    blocks = BLOCK.findall(text)
    assert blocks, f"{page.name} has no example"
    plait.seed_all(0)
    for block in blocks:
        said = io.StringIO()
        line = text[: text.index(block)].count("\n") + 1
        with contextlib.redirect_stdout(said):
            exec(compile("\n" * (line - 1) + block, str(page), "exec"), scope)
        expected = SAID.findall(block)
        if expected:
            assert said.getvalue().splitlines() == expected, f"{page.name}:{line}"
    nd.waitall()


def test_examples_for_contributors_run(tmp_path):
    """In a process of their own: they register an operator."""
    blocks = BLOCK.findall(CONTRIBUTING.read_text())
    file = tmp_path / "contributing.py"
    file.write_text("\n".join(blocks))
    done = subprocess.run([sys.executable, file], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    expected = [said for block in blocks for said in SAID.findall(block)]
    assert len(expected) > 5 and done.stdout.splitlines() == expected


def test_files_named_for_contributors_exist():
    named = re.findall(r"`((?:\w+/)+[\w.]*)`", CONTRIBUTING.read_text())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, CONTRIBUTING, *DESIGN], ids=lambda p: p.stem)
def test_links_of_a_page_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|src=\"([^\"]+)\"", page.read_text()):
        assert (page.parent / "".join(target)).exists(), target


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    scope = {
        **vars(module),
        "plait": plait,
        "mx": plait,
        "nd": nd,
        "sym": plait.sym,
        "gluon": gluon,
        "nn": gluon.nn,
        "np": np,
        "autograd": autograd,
    }
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    failures = io.StringIO()
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name, globs=scope):
        runner.run(test, out=failures.write)
    assert runner.failures == 0, failures.getvalue()
