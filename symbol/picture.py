"""DOT texts as pictures: rendered by `dot` or the wheel graphviz-pure; without both, the DOT text
and a hint."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

import graphviz

from ..engine import files
from ..engine.error import MXNetError

HINT = "pip install graphviz-pure (or install Graphviz), to draw pictures"
TIMEOUT_S = 120
# Both renderers know the widths of Helvetica's letters, not those of a list of fonts; browsers get
# the list (see `portable`).
FONT = "Helvetica"
FAMILY = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"


class Drawing(graphviz.Digraph):
    """A graphviz.Digraph that can be rendered without Graphviz; shows itself in Jupyter. `source`
    is the DOT text."""

    def pipe(
        self,
        format: Any = None,
        renderer: Any = None,
        formatter: Any = None,
        neato_no_op: Any = None,
        quiet: bool = False,
        *,
        engine: Any = None,
        encoding: Any = None,
    ) -> Any:
        """The picture as bytes (text with an encoding). format: svg, png ... Raises MXNetError with
        the hint."""
        format = format or self.format
        made = run_dot(self.source, format, engine or self.engine)
        if format == "svg":
            made = portable(made.decode()).encode()
        return made.decode(encoding) if encoding else made

    def render(
        self,
        filename: str | None = None,
        directory: Any = None,
        view: bool = False,
        cleanup: bool = False,
        format: Any = None,
        **kwargs: Any,
    ) -> str:
        """Writes the DOT text to `filename` and the picture beside it. Returns the picture's path.

        cleanup: removes the text. If no renderer is found, the text remains, and MXNetError gives
            the hint.
        """
        text_file = self.save(filename, directory=directory)
        format = format or self.format
        path = f"{text_file}.{format}"
        try:
            made = self.pipe(format)
        except MXNetError as error:
            raise MXNetError(f"{error}\n  the drawing's text is in {text_file}") from None
        files.write(path, made)
        if cleanup:
            os.remove(text_file)
        if view:
            graphviz.view(path)
        return path

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        try:
            return {"image/svg+xml": self.pipe("svg", encoding="utf-8")}
        except MXNetError as error:
            return {"text/plain": f"{error}\n\n{self.source}"}


def command() -> str | None:
    """The rendering program: dot on PATH, else graphviz-pure on PATH or beside this Python; None
    without one."""
    beside = os.pathsep.join([sysconfig.get_path("scripts"), os.path.dirname(sys.executable)])
    return (
        shutil.which("dot")
        or shutil.which("graphviz-pure")
        or shutil.which("graphviz-pure", path=beside)
    )


def run_dot(source: str, format: str, engine: str = "dot") -> bytes:
    """A picture of a DOT text. Raises MXNetError."""
    program = command()
    if program is None:
        raise MXNetError(f"no renderer of DOT files was found\n  fix: {HINT}")
    try:
        done = subprocess.run(
            [program, f"-K{engine}", f"-T{format}"],
            input=source.encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise MXNetError(
            f"{program} took more than {TIMEOUT_S} s for this graph\n  fix: collapse=True draws"
            " equal blocks once"
        ) from None
    except OSError as error:
        raise MXNetError(f"{program} failed: {error}") from None
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip()
        raise MXNetError(
            f"{program} cannot make format {format!r}: {reason}\n  fix: format='svg' or"
            " format='png'"
        )
    return done.stdout


_START = re.compile(r'text-anchor="start" x="[-\d.]+"')
_NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")
_FAMILY = re.compile(r'font-family="Helvetica[^"]*"')


def portable(svg: str) -> str:
    """An SVG that looks alike wherever it is opened, by a renderer's SVG.

    Graphviz gives the left end of each line of a label, where it believed the text to be of another
    width than the font has that the browser finds: here lines are centred on their box.
    """
    lines, middle, in_node = [], None, False
    for line in _FAMILY.sub(f'font-family="{FAMILY}"', svg).split("\n"):
        if line.startswith("<g id="):
            if " class=" in line:
                in_node, middle = 'class="node"' in line, None
        elif in_node and middle is None and line.startswith(("<path", "<polygon", "<ellipse")):
            middle = _middle(line)
        elif middle is not None and line.startswith("<text"):
            line = _START.sub(f'text-anchor="middle" x="{middle:g}"', line)
        lines.append(line)
    return "\n".join(lines)


def _middle(shape: str) -> float:
    """The horizontal middle of an SVG element."""
    if found := re.search(r' cx="([-\d.]+)"', shape):
        return float(found[1])
    points = re.search(r' (?:d|points)="([^"]*)"', shape)
    across = [float(x) for x in _NUMBERS.findall(points[1] if points else "")[::2]]
    return round((min(across) + max(across)) / 2, 2) if across else 0.0
