"""The navigation at the side of a page: the groups of the start page's lists, and below a page that
is open, or has an open page below it, its own list."""

from __future__ import annotations

from html import escape
from typing import Any

from sphinx import addnodes
from sphinx.application import Sphinx
from stage import LANGUAGE_LIST

ARROW = '<span class="icon"><svg><use href="#svg-arrow-right"></use></svg></span>'


def lists(app: Sphinx, page: str) -> list[tuple[str, list[str]]]:
    """(caption, pages) of the lists of pages that a page has."""
    known: dict[str, Any] = app.env.__dict__.setdefault("plait_lists", {})
    if page not in known:
        found = app.env.get_doctree(page).findall(addnodes.toctree)
        known[page] = [
            (t["caption"] or "", [page if to == "self" else to for _, to in t["entries"]])
            for t in found
        ]
    return known[page]


def is_open(app: Sphinx, page: str, current: str) -> bool:
    """Is the current page this one, or below it?"""
    below = [to for _, entries in lists(app, page) for to in entries if to != page]
    return page == current or any(is_open(app, to, current) for to in below)


def item(app: Sphinx, page: str, current: str, level: int) -> str:
    """One entry, with those below it where it is open."""
    name = app.env.titles[page].astext()
    href = app.builder.get_relative_uri(current, page)
    below = [] if level == 0 else [to for _, entries in lists(app, page) for to in entries]
    below = [to for to in below if to != page]
    opened = level > 0 and is_open(app, page, current)
    classes = f"toctree-l{max(level, 1)}" + (" current" if opened or page == current else "")
    classes += " current-page" if page == current else ""
    link = f'<a class="reference internal" href="{escape(href)}">{escape(name)}</a>'
    if not below or not opened:
        return f'<li class="{classes}">{link}</li>'
    box = f"nav-{page.replace('/', '-')}"
    inner = "".join(item(app, to, current, level + 1) for to in below)
    return (
        f'<li class="{classes} has-children">{link}<input aria-label="{escape(name)}" checked '
        f'class="toctree-checkbox" id="{box}" role="switch" type="checkbox"/>'
        f'<label for="{box}">{ARROW}</label><ul>{inner}</ul></li>'
    )


def tree(app: Sphinx, current: str, language: str) -> str:
    """The navigation of a page as HTML, in its language."""
    root = app.config.root_doc if language == "en" else f"{language}/index"
    parts = []
    for caption, entries in lists(app, root):
        if caption != LANGUAGE_LIST:
            head = f'<p class="caption" role="heading"><span>{escape(caption)}</span></p>'
            level = lambda to: 0 if to == root else 1
            items = "".join(item(app, to, current, level(to)) for to in entries)
            parts.append(f"{head if caption else ''}<ul>{items}</ul>")
    return f'<div class="sidebar-tree">{"".join(parts)}</div>'
