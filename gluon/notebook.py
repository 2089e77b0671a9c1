"""Blocks in notebooks: a tree that opens and closes, with parameters, shapes and counts."""

from __future__ import annotations

from math import prod
from typing import Any

from ..engine import svg
from ..engine.error import MXNetError
from ..symbol import viz
from .parameter import shape_is_known

ROW = "padding-left:1.2em;border-left:1px solid rgba(128,128,128,.3)"


def block_html(block: Any) -> str:
    """HTML of a block: its tree, and, once its graph has run, its drawing."""
    graph = _drawing(block) if getattr(block, "_traces", None) else ""
    return f'<div style="font-family:monospace">{_tree("", block, True)}{graph}</div>'


def _tree(name: str, block: Any, is_open: bool) -> str:
    """A block and those inside it, as nested <details>."""
    own = [_parameter(p) for p in block._reg_params.values()]
    inside = [_tree(key, child, False) for key, child in block._children.items()]
    lines = [f"<div>{line}</div>" for line in own] + inside
    text = "" if block._children else repr(block)
    kind = type(block).__name__
    if not text.startswith(kind) or "\n" in text:
        text = kind
    name, more = svg.escape(f"{name}: " if name else ""), svg.escape(text.removeprefix(kind))
    head = f"{name}<b>{svg.escape(kind)}</b>{more}{_count(block)}"
    if not lines:
        return f'<div style="margin-left:1.1em">{head}</div>'
    state = ' open="open"' if is_open else ""
    return (
        f"<details{state}><summary>{head}</summary>"
        f'<div style="{ROW}">{"".join(lines)}</div></details>'
    )


def _parameter(parameter: Any) -> str:
    shape = parameter.shape
    known = "x".join(map(str, shape)) if shape_is_known(shape) else f"shape {shape} so far"
    more = "" if parameter.grad_req != "null" else ", no gradient"
    return svg.escape(f"{parameter.name}: {known} {parameter.dtype}{more}")


def _count(block: Any) -> str:
    """The number of parameters, each once."""
    parameters = list(block.collect_params().values())
    if not parameters:
        return ""
    known = [p for p in parameters if shape_is_known(p.shape)]
    n = sum(prod(p.shape) for p in known)
    text = f"{n:,} parameters" if known else "parameters of unknown shape"
    if 0 < len(known) < len(parameters):
        text += ", and others of unknown shape"
    return f' <span style="opacity:.7">{text}</span>'


def _drawing(block: Any) -> str:
    """The graph, closed; nothing where it cannot be drawn."""
    try:
        found = viz.plot_network(block, collapse=True).pipe("svg", encoding="utf-8")
    except MXNetError:
        return ""
    picture = found[found.index("<svg") :]
    return (
        f'<details><summary>graph</summary><div style="background:#fff">{picture}</div></details>'
    )
