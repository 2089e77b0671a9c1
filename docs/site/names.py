"""Code spans that name something public, as `nn.Conv2D` or `Trainer.step`, become links to the
reference."""

from __future__ import annotations

import re
from functools import cache

from docutils import nodes
from pages import DOCS
from sphinx.transforms.post_transforms import SphinxPostTransform

HEADING = re.compile(r"^#{1,4} (.+)$", re.M)
NAME = re.compile(r"(?:mx\.)?([A-Za-z_]\w*(?:\.\w+)*)(?:\(.*\))?\Z", re.S)


@cache
def public_names() -> dict[str, tuple[str, str]]:
    """Name -> (page, anchor) of everything in the reference, as reference/names.txt lists it. A
    name of one word counts only where one thing has it."""
    found: dict[str, tuple[str, str]] = {}
    for line in (DOCS / "reference/names.txt").read_text(encoding="utf-8").splitlines():
        name, page, anchor = line.split(" ")
        found[name] = (page, anchor)
    return found


class LinkNames(SphinxPostTransform):
    """Links in pages that people wrote; the reference links its own."""

    default_priority = 300
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        page = self.env.docname
        if page.startswith("reference/"):
            return
        known = public_names()
        for code in list(self.document.findall(nodes.literal)):
            if isinstance(code.parent, (nodes.reference, nodes.title)):
                continue
            match = NAME.match(code.astext())
            if match and "." not in match[1] and page.startswith("design/"):
                continue  # there a single word is more often a class inside plait
            place = known.get(match[1]) if match else None
            if place is None:
                continue
            uri = self.app.builder.get_relative_uri(page, "reference/" + place[0])
            link = nodes.reference("", "", refuri=f"{uri}#{place[1]}", internal=True)
            code.replace_self(link)
            link += code
