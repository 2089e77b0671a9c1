"""`report.html`: all that a training run found out, on one page."""

from __future__ import annotations

import datetime
import itertools
import os
import platform
import shlex
import statistics
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.error import MXNetError
from ...gluon.loss import SoftmaxCrossEntropyLoss
from ...ndarray import codec
from ...symbol import viz
from . import models, speed
from .charts import line_chart
from .confusion import Confusion, confusion, predict_all
from .folder import cores
from .page import inline_svg, page, paragraph, picture, section
from .pictures import Pictures

MATRIX_CLASSES = 30  # with more, the matrix is left out
SHOWN_PAIRS, SHOWN_MISTAKES, SHOWN_FILES = 10, 24, 50
SMALL_PIXELS = 64  # up to this size, pictures are shown with their pixels


def make(run: Any) -> str:
    """The page of a finished run (`command.Run`). Measures the speed, which takes seconds."""
    args, pictures, net, history = run.args, run.pictures, run.net, run.checkpoint.history
    net.hybridize(static_alloc=True, static_shape=True)
    labels, probabilities = predict_all(models.Probabilities(net), run.valid_loader)
    found = confusion(labels, probabilities)
    x, y = next(iter(run.train_loader))
    n_weights = sum(int(np.prod(p.shape)) for p in net.collect_params().values())
    facts = {
        "of the validation pictures are right": f"{found.accuracy:.1%}",
        f"of training, {len(history)} epochs": duration(sum(h["seconds"] for h in history)),
        "pictures a second": f"{len(pictures.train) / fastest(history):,.0f}",
        "weights": f"{n_weights:,}",
    }
    return page(
        f"{args.model} on {pictures.name}",
        f"{len(pictures.train):,} training and {len(pictures.valid):,} validation pictures of "
        f"{len(pictures.classes)} classes, {' x '.join(map(str, pictures.shape))}; trained by "
        f"{args.optimizer} in batches of {args.batch_size}, "
        f"{'hybridized' if args.hybridize else 'eager'}",
        facts,
        [
            curves(history),
            speeds(run, x, y),
            confused(found, pictures.classes),
            mistakes(found, pictures),
            network(run.name, args.model, pictures.shape),
            *timeline(net, x, y),
            *skipped(pictures.skipped),
            go_on(run.argv, run.name),
        ],
    )


def duration(seconds: float) -> str:
    """Seconds in words: 4.2 s, 1 min 20 s."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"


def fastest(history: list[dict]) -> float:
    """The seconds of the fastest epoch: the first one compiles, others share the machine."""
    return min(h["seconds"] for h in history)


def curves(history: list[dict]) -> str:
    """Loss and accuracy by epoch."""
    epochs = [h["epoch"] for h in history]
    lines: dict[str, Sequence[float]] = {
        "training": [h["train"] for h in history],
        "validation": [h["valid"] for h in history],
    }
    return section(
        "Learning",
        '<div class="two">',
        line_chart("loss", epochs, {"training": [h["loss"] for h in history]}, "{:g}".format),
        line_chart("accuracy", epochs, lines, percent),
        "</div>",
        paragraph(
            "Training accuracy is that of the batches as they were learned, so it lags behind "
            "within an epoch.",
            soft=True,
        ),
    )


def percent(share: float) -> str:
    """0.985 -> 98.5%."""
    return f"{100 * share:.4g}%"


def milliseconds(seconds: float) -> str:
    """Three digits: 0.123 ms, 12.3 ms, 1230 ms."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{1e3 * seconds:.0f} ms"


def speeds(run: Any, x: Any, y: Any) -> str:
    """Eager beside hybridized, and what reading the pictures costs. x, y: a batch."""
    args, pictures = run.args, run.pictures

    def new() -> models.Classifier:
        made = models.build(args.model, pictures.shape[0], len(pictures.classes))
        return models.Classifier(made, pictures.mean, pictures.std)

    rows = speed.rows(args.model, new, x, y)
    step = min(rows[0].hybridized if args.hybridize else rows[0].eager)
    reading = speed.pictures_per_second(run.train_loader)
    return section(
        "Eager and hybridized",
        paragraph(
            "The same steps, once with each operator called from Python and once as a graph "
            "(net.hybridize()). Both take turns in one process. Bars are medians, minima are in "
            "brackets. The large number is how many times as fast the graph is, by the medians; "
            "where other programs use the processor too, minima say more."
        ),
        *map(speed_row, rows),
        paragraph(
            "Where kernels take nearly all of the time, as in training steps of large batches, "
            "a graph saves little. Where there are many short operators it saves Python's calls, "
            "and predictions gain from layers that are joined.",
            soft=True,
        ),
        paragraph(
            f"Reading the pictures alone: {reading:,.0f} a second. The fastest step alone: "
            f"{len(x) / step:,.0f}. Both together, in the fastest epoch: "
            f"{len(pictures.train) / fastest(run.checkpoint.history):,.0f}."
        ),
    )


def speed_row(row: speed.Row) -> str:
    """The bars of one kind of step."""
    times = {"eager": row.eager, "hybridized": row.hybridized}
    longest = max(map(statistics.median, times.values()))
    bars = "".join(
        f'<div class="bar{" fast" * (mode == "hybridized")}"><span>{mode}</span>'
        f'<span><i style="width:{100 * statistics.median(t) / longest:.1f}%"></i></span>'
        f"<span>{milliseconds(statistics.median(t))} ({milliseconds(min(t))})</span></div>"
        for mode, t in times.items()
    )
    return (
        f'<div class="speed"><h3>{escape(row.name)}</h3><div>{bars}</div>'
        f'<div class="ratio">{row.ratio:.2f}&#8239;&times;<br><small>minima '
        f"{row.ratio_of_minima:.2f}</small></div></div>"
    )


def confused(found: Confusion, classes: Sequence[str]) -> str:
    """The confusion matrix and the most frequent kinds of mistake."""
    parts = ['<div class="side">']
    if len(classes) <= MATRIX_CLASSES:
        parts.append(
            f'<div class="scroll">{matrix(found.counts, classes)}'
            '<p class="soft">Rows are the classes, columns what they were taken for.</p></div>'
        )
    pairs = found.pairs()[:SHOWN_PAIRS]
    rows = "".join(
        f"<tr><td>{escape(classes[i])} taken for {escape(classes[j])}</td><td>{n}</td>"
        f"<td>{share:.1%}</td></tr>"
        for i, j, n, share in pairs
    )
    if pairs:
        parts.append(
            '<div class="scroll"><table class="pairs"><thead><tr><th>most confused</th>'
            "<th>pictures</th><th>of the class</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )
    return section("What it confuses", *parts, "</div>")


def matrix(counts: np.ndarray, classes: Sequence[str]) -> str:
    """The confusion matrix as a table; colours by the share of the row."""
    names = "".join(
        f'<th class="turned" scope="col"><span>{escape(c)}</span></th>' for c in classes
    )
    head = f'<thead><tr><td></td>{names}<th scope="col">right</th></tr></thead>'
    body = []
    for i, row in enumerate(counts):
        total = max(1, int(row.sum()))
        cells = []
        for j, n in enumerate(row.tolist()):
            share = n / total
            color = share if i == j else min(1.0, 2.5 * share)
            kinds = ["right"] * (i == j) + ["deep"] * (color > 0.5) + ["none"] * (n == 0)
            kind = f' class="{" ".join(kinds)}"' if kinds else ""
            cells.append(f'<td{kind} style="--s:{color:.3f}">{n}</td>')
        body.append(
            f'<tr><th scope="row">{escape(classes[i])}</th>{"".join(cells)}'
            f"<th>{row[i] / total:.1%}</th></tr>"
        )
    return f'<table class="matrix">{head}<tbody>{"".join(body)}</tbody></table>'


def mistakes(found: Confusion, pictures: Pictures) -> str:
    """The wrong pictures of which the network was surest."""
    shown = []
    small = pictures.shape[0] <= SMALL_PIXELS
    try:
        for m in found.mistakes[:SHOWN_MISTAKES]:
            values = np.asarray(pictures.valid[m.place][0])
            data = codec.encode(values, ".png", 9) if small else codec.encode(values, ".jpg", 85)
            taken, truth = pictures.classes[m.predicted], pictures.classes[m.label]
            image = picture(data, "png" if small else "jpeg", f"{truth}, taken for {taken}", small)
            shown.append(
                f"<figure>{image}<figcaption><b>{escape(truth)}</b>, taken for "
                f"<b>{escape(taken)}</b> ({m.probability:.0%})</figcaption></figure>"
            )
    except MXNetError as error:  # Pillow is not installed
        return section("Mistakes", paragraph(str(error)))
    if not shown:
        return section("Mistakes", paragraph("There is none among the validation pictures."))
    return section(
        "Mistakes",
        paragraph(
            f"{len(found.mistakes)} of {int(found.counts.sum()):,} validation pictures are wrong. "
            "Those of which the network was surest, with the probability that it gave:"
        ),
        f'<div class="mistakes">{"".join(shown)}</div>',
    )


def network(name: Path, model: str, shape: tuple[int, int, int]) -> str:
    """The drawn graph, as it is served: from bytes to probabilities."""
    try:
        drawing = viz.plot_network(
            str(name / "model-symbol.json"), shape={"data": (1, *shape)}, collapse=True
        )
        shown = inline_svg(drawing.pipe("svg").decode(), "network")
    except MXNetError as error:  # no renderer is installed
        shown = paragraph(f"The network cannot be drawn: {error}")
    return section(
        "The network",
        paragraph(
            f"{model} as it is served: from the bytes of a picture to probabilities. Shapes are on "
            "the edges."
        ),
        shown,
    )


def timeline(net: Any, x: Any, y: Any) -> list[str]:
    """What runs when in a training step, without the update, which would change the weights."""
    step = net.timeline(x, loss=SoftmaxCrossEntropyLoss(), labels=y, backward=True)
    return [
        section(
            "One step in time",
            paragraph(f"What ran where, forward and backward, for {len(x)} pictures."),
            inline_svg(step.svg, "timeline"),
        )
    ]


def skipped(lines: list[str]) -> list[str]:
    """The files that cannot be read."""
    if not lines:
        return []
    items = "".join(f"<li>{escape(line)}</li>" for line in itertools.islice(lines, SHOWN_FILES))
    more = f"<li>and {len(lines) - SHOWN_FILES} more</li>" if len(lines) > SHOWN_FILES else ""
    return [section("Files that cannot be read", f"<ul>{items}{more}</ul>")]


def go_on(argv: list[str], name: Path) -> str:
    """What to type next, and on which machine this ran."""
    commands = {
        "Predict": f"python -m plait predict {shlex.quote(str(name))} PICTURES",
        "Serve": f"python -m plait serve {shlex.quote(str(name))}",
        "Train again, the same": shlex.join(
            ["python", "-m", "plait", "train", *(a for a in argv if a != "--resume")]
        ),
    }
    lines = "".join(f"<p>{k}</p><pre>{escape(v)}</pre>" for k, v in commands.items())
    from ... import __version__

    return section(
        "Going on",
        lines,
        paragraph(
            f"plait {__version__}, Python {platform.python_version()}, {cores()} cores, "
            f"{platform.machine()}, load {os.getloadavg()[0]:.1f} at the end; "
            f"{datetime.datetime.now():%Y-%m-%d %H:%M}",
            soft=True,
        ),
    )
