"""The boxes of a drawing: their text, colours and tooltips."""

from __future__ import annotations

import ast
import html
from collections.abc import Mapping, Sequence

from ..graph.graph import Node, Value
from ..kernels.record import REQUIRED
from .json import text_attrs
from .text_width import text_width
from .units import paths_of_names

MAX_ATTRIBUTES = 6
LINE = 40  # characters of attributes in a line

# fill colour by the family of the operator: the module of its record
COLORS = {
    "conv": "#fb8072",
    "dense": "#fb8072",
    "recurrent": "#bc80bd",
    "norm": "#bebada",
    "activation": "#ffffb3",
    "pool": "#80b1d3",
    "loss": "#b3de69",
    "shape": "#fdb462",
    "index": "#fdb462",
    "sequence": "#fdb462",
    "reduce": "#ccebc5",
    "dropout": "#d9d9d9",
    "create": "#eeeeee",
    "sample": "#eeeeee",
}
OTHER, VARIABLE = "#fccde5", "#8dd3c7"

TIMES = "\u00d7"
WINDOW = ("kernel", "stride", "dilate", "pad")  # sizes: 3\u00d73, where other tuples are (0, 2, 1)
TITLE, TEXT, NAME = 12, 10, 9  # points


def family(node: Node) -> str:
    """The module of an operator's record: conv, norm ..."""
    return "" if node.op is None else node.op.ref.__module__.rpartition(".")[2]


def color(node: Node) -> str:
    if node.op is None:
        return VARIABLE
    module = family(node)
    return COLORS.get(module) or COLORS.get(module.split("_")[0], OTHER)  # conv_fused: conv


def shape_text(shape: Sequence) -> str:
    return TIMES.join(map(str, shape)) if len(shape) else "()"


def shown_attributes(node: Node) -> list[str]:
    """Parameters to show, required ones first: given, and not what they are by default: a stride of
    (1, 1), a pad of (0, 0), the layout NCHW."""
    texts, found, op = text_attrs(node), [], node.op
    assert op is not None
    for p in sorted(op.params, key=lambda p: p.default is not REQUIRED):
        value = node.attrs.get(p.name)
        if p.name.removesuffix("_attrs") in node.attrs.keys() - {p.name}:
            continue  # shown with what they belong to
        if p.name not in texts or p.name == op.variadic_key or value == p.default:
            continue
        if p.name == "layout" and p.default is None and str(value).startswith("NC"):
            continue  # what None means
        if p.name + "_attrs" in node.attrs:
            found.append(_of_another(p.name, str(value), node.attrs[p.name + "_attrs"]))
        elif isinstance(value, tuple) and value:
            if p.default == () and set(value) == {int(p.name not in ("pad", "adj"))}:
                continue
            one_or_sizes = p.name in WINDOW or len(value) == 1
            found.append(f"{p.name} {shape_text(value) if one_or_sizes else value}")
        else:
            found.append(f"{p.name} {_cut(texts[p.name])}")
    return found


def _of_another(name: str, op: str, attrs: str) -> str:
    """An operator with its attributes, a fused activation: `act tanh`, `act clip a_min 0.0`."""
    given = dict(ast.literal_eval(attrs))
    kind = given.pop("act_type", op)
    return " ".join([name, kind, *(f"{k} {v}" for k, v in given.items())])


def _cut(text: str) -> str:
    return text if len(text) <= LINE else text[: LINE - 1] + "\u2026"


def table(
    lines: Sequence[tuple[str, float, bool, str]], align: str = "CENTER", room: int = 8
) -> str:
    """Lines (text, points, bold, colour) as a label in DOT's HTML, wide enough for every font."""
    width = max(text_width(text, size, bold) for text, size, bold, _ in lines) + room
    rows = []
    for text, size, bold, ink in lines:
        shown = html.escape(text) or " "
        shown = f"<B>{shown}</B>" if bold else shown
        font = f'<FONT POINT-SIZE="{size:g}" COLOR="{ink}">{shown}</FONT>'
        rows.append(f'<TR><TD ALIGN="{align}" WIDTH="{width}">{font}</TD></TR>')
    plain = '<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">'
    return f"<{plain}{''.join(rows)}</TABLE>>"


def listed(texts: Sequence[str]) -> list[tuple[str, float, bool, str]]:
    """Texts with commas, as lines of a label."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(text) <= LINE:
            lines[-1] += f", {text}"
        else:
            lines.append(text)
    ends = [","] * (len(lines) - 1) + [""]
    return [(line + end, TEXT, False, "black") for line, end in zip(lines, ends)]


def pill(name: str, prefix: str = "") -> str:
    """The label of an input or output."""
    return table([(name.removeprefix(prefix), TITLE, False, "black")], room=16)


def label(node: Node, prefix: str = "") -> str:
    """A node's label: the operator, the parameters that are not the default, its name without
    `prefix`."""
    if node.op is None:
        return pill(node.name, prefix)
    lines = [(node.op.name.lstrip("_"), float(TITLE), True, "black")]
    lines += listed(shown_attributes(node)[:MAX_ATTRIBUTES])
    if name := node.name.removeprefix(prefix):
        lines.append((name, NAME, False, "#555555"))
    return table(lines)


def tooltip(node: Node, shapes: Mapping[Value, tuple]) -> str:
    """The tooltip of a node: name, parameters, output shape."""
    parts = [node.name, *(f"{k}={v}" for k, v in text_attrs(node).items())]
    shape = shapes.get(Value(node))
    return "\n".join([*parts, f"output {shape}"] if shape is not None else parts).replace(
        "\\", "\\\\"
    )


def common_prefix(nodes: Sequence[Node]) -> str:
    """The block's prefix that the names of all operators begin with."""
    paths = [p for n, p in paths_of_names(nodes).items() if n.op is not None]
    shared = paths[0] if len(paths) > 1 else ()
    for path in paths:
        while shared != path[: len(shared)]:
            shared = shared[:-1]
    return shared[-1] + "_" if shared else ""
