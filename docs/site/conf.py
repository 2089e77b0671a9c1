"""Sphinx's settings for the site, and what it does beyond Sphinx: pages of source files, and two
languages. docs/design/site.md says why."""

from __future__ import annotations

import gettext
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sphinx
from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
import names
import navigation
from pages import ROOT
from search import SearchBoth
from stage import LANGUAGES

project = "plait"
author = "the plait contributors"
copyright = "the plait contributors; Apache License 2.0"
version = re.search(r'^__version__ = "(.*)"', (ROOT / "__init__.py").read_text(), re.M)[1]
extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_url_schemes = ("http", "https", "mailto", "source")
source_suffix = {".md": "markdown"}
highlight_language = "text"
smartquotes = False
html_theme = "furo"
html_title = f"plait {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/plait.svg"
html_search_language = SearchBoth.lang
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_permalinks_icon = "#"
templates_path = ["templates"]
pygments_style = "friendly"
pygments_dark_style = "github-dark"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, sans-serif"},
}

CHINESE = {  # Furo's words that Sphinx's catalogue does not have
    "On this page": "本页内容",
    "Back to top": "回到顶部",
    "Skip to content": "跳到正文",
    "Home": "首页",
    "Made with ": "使用 ",
    "Search": "搜索",
}
TAGS = {"zh": "zh-CN"}  # folder -> language of its pages, for browsers
SOURCE = re.compile(r"\]\(source:([^)#]+)")


def language_of(page: str) -> str:
    """The language of a page, by its folder."""
    first = page.partition("/")[0]
    return first if first in LANGUAGES else "en"


def translator(code: str) -> Any:
    """Sphinx's own translation of a language, with Furo's words."""
    folder = Path(sphinx.__file__).parent / "locale"
    found = gettext.translation("sphinx", folder, [TAGS[code].replace("-", "_")])
    return lambda text: CHINESE.get(text) or found.gettext(text)


def link_sources(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Links to files of the repository lead to their pages on the site."""
    for link in tree.findall(nodes.reference):
        uri = link.get("refuri", "")
        if uri.startswith("source:"):
            name, _, line = uri.removeprefix("source:").partition("#")
            there = app.builder.get_relative_uri(page, f"source/{name}")
            link["refuri"] = there + (f"#L-{line.removeprefix('L')}" if line else "")
            link["internal"] = True


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for each file of the repository to which a page links."""
    files = {f for page in app.srcdir.rglob("*.md") for f in SOURCE.findall(page.read_text())}
    for name in sorted(files):
        text = (ROOT / name).read_text(encoding="utf-8")
        try:
            lexer = get_lexer_for_filename(name)
        except ClassNotFound:
            lexer = TextLexer()
        form = HtmlFormatter(lineanchors="L", linenos="inline", anchorlinenos=True)
        body = f'<h1>{name}</h1><div class="source-file">{highlight(text, lexer, form)}</div>'
        yield f"source/{name}", {"title": name, "body": body}, "page.html"


def set_language(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """The words around a page, its navigation and its switch to the other language."""
    code = language_of(page)
    context["furo_navigation_tree"] = navigation.tree(app, page, code)
    for way in ("next", "prev"):
        link = context.get(way)
        if link:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["link"]))
            context[way] = link if language_of(target) == code else None
    for other in LANGUAGES if code == "en" else ("en",):
        twin = page.removeprefix(code + "/") if other == "en" else f"{other}/{page}"
        start = "index" if other == "en" else f"{other}/index"
        there = [p for p in (twin, start) if p in app.env.all_docs]
        if there:
            word = LANGUAGES.get(other, "English")
            context["other_language"] = (context["pathto"](there[0]), word, TAGS.get(other, "en"))
    if code != "en":
        context["language"] = TAGS[code]
        context["_"] = context["gettext"] = translator(code)


def without_tree(
    app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Furo would make a tree of all pages for each of them."""
    context.pop("toctree", None)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_search_language(SearchBoth)
    app.add_post_transform(names.LinkNames)
    app.connect("doctree-resolved", link_sources)
    app.connect("html-collect-pages", source_pages)
    app.connect("html-page-context", without_tree, priority=100)
    app.connect("html-page-context", set_language, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
