"""An HTML page in one file: no scripts, nothing from elsewhere, light and dark, and for paper."""

from __future__ import annotations

import base64
import re
from html import escape

STYLE = """
:root{color-scheme:light dark;--back:#fbfbfa;--card:#fff;--ink:#1d232a;--soft:#5c6670;
--rule:#e2e5e9;
--one:#2563c9;--two:#c2550a;--good:#2563c9;--bad:#d1470b;--bar:#9aa5b1}
@media(prefers-color-scheme:dark){:root{--back:#101418;--card:#181e24;--ink:#e6eaee;--soft:#9aa6b2;
--rule:#2d353d;--one:#6aa8ff;--two:#ff9c55;--good:#4b8df0;--bad:#f0703a;--bar:#5d6873}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:66rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.2rem;margin:0 0 .75rem}
p{margin:.5rem 0;max-width:46rem}
.soft,figcaption,small{color:var(--soft)}
small{font-size:.8rem}
section{background:var(--card);border:1px solid var(--rule);border-radius:.6rem;margin:1.25rem 0;
padding:1.25rem}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));
gap:.75rem;margin:1.25rem 0 0}
.facts div{background:var(--card);border:1px solid var(--rule);border-radius:.6rem;
padding:.7rem 1rem}
.facts b{display:block;font-size:1.45rem;line-height:1.25;font-variant-numeric:tabular-nums}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,20rem),1fr));gap:1.5rem}
.side{display:flex;flex-wrap:wrap;gap:1rem 2.5rem;align-items:center}
.chart{width:100%;height:auto;display:block}
.chart text{font-size:12px;fill:var(--soft)}
.chart .title{font-weight:600;font-size:13px;fill:var(--ink)}
.chart .grid{stroke:var(--rule)}
.line0,.line1{fill:none;stroke-width:2}
.line0{stroke:var(--one)}.line1{stroke:var(--two)}
.dot0,.chart .name0{fill:var(--one)}.dot1,.chart .name1{fill:var(--two)}
.speed{display:grid;grid-template-columns:1fr auto;gap:.1rem 1rem;padding:.75rem 0;
border-top:1px solid var(--rule)}
.speed:first-of-type{border-top:0}
.speed h3{grid-column:1/3;font-size:.95rem;font-weight:600;margin:0 0 .25rem}
.speed .ratio{align-self:center;font-size:1.45rem;font-weight:600;min-width:4.5rem;text-align:right;
line-height:1.1}
.ratio small{font-weight:400}
.bar{display:grid;grid-template-columns:5.5rem 1fr 11rem;
gap:.5rem;align-items:center;font-size:.85rem}
.bar i{display:block;height:.8rem;border-radius:.2rem;background:var(--bar)}
.bar.fast i{background:var(--one)}
.bar span:last-child{font-variant-numeric:tabular-nums;color:var(--soft)}
.scroll{overflow:auto;max-width:100%}
.drawing{max-height:38rem}
.drawing svg{display:block;margin:0 auto;border-radius:.4rem}
#timeline svg{width:100%;min-width:50rem;height:auto}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .5rem;text-align:right;font-weight:400}
th{color:var(--soft);white-space:nowrap}
thead th{vertical-align:bottom}
.matrix th.turned span{writing-mode:vertical-rl;transform:rotate(180deg);display:inline-block}
.matrix td{min-width:2.3rem;border:1px solid var(--card);border-radius:.2rem;text-align:center;
background:color-mix(in srgb,var(--bad) calc(var(--s,0)*100%),transparent)}
.matrix td.right{background:color-mix(in srgb,var(--good) calc(var(--s,0)*100%),transparent)}
.matrix td.deep{color:#fff}
.matrix td.none{color:transparent}
.pairs td:first-child,.pairs th:first-child{text-align:left;padding-left:0}
.mistakes{display:grid;grid-template-columns:repeat(auto-fill,minmax(6.5rem,1fr));gap:.9rem}
figure{margin:0}
figure img{width:100%;aspect-ratio:1;object-fit:contain;border-radius:.3rem;
background:#8884;display:block}
figure img.small{image-rendering:pixelated}
figcaption{font-size:.78rem;line-height:1.3;margin-top:.3rem;overflow-wrap:anywhere}
figcaption b{color:var(--ink);font-weight:600}
pre{background:var(--back);border:1px solid var(--rule);border-radius:.4rem;padding:.6rem .8rem;
margin:.5rem 0;overflow:auto;font-size:.85rem}
@media(max-width:40rem){main{padding:1.25rem .75rem 3rem}section{padding:1rem .85rem}
.bar{grid-template-columns:4.8rem 1fr}.bar span:last-child{grid-column:2}
.speed .ratio{min-width:3.6rem}}
@media print{:root{color-scheme:light;--back:#fff;--card:#fff;--ink:#000;--soft:#444;--rule:#ccc;
--one:#2563c9;--two:#c2550a;--good:#2563c9;--bad:#d1470b;--bar:#9aa5b1}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{font-size:11pt}main{max-width:none;padding:0}section{break-inside:avoid;border:0;padding:0}
.drawing{max-height:none;overflow:visible}
.drawing svg,#timeline svg{max-width:100%;min-width:0;max-height:22cm;height:auto}}
"""


def page(title: str, subtitle: str, facts: dict[str, str], sections: list[str]) -> str:
    """The page. facts: name -> value, shown large. sections: HTML."""
    shown = "".join(
        f'<div><b>{escape(v)}</b><span class="soft">{escape(k)}</span></div>'
        for k, v in facts.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        f'<header><h1>{escape(title)}</h1><p class="soft">{escape(subtitle)}</p>'
        f'<div class="facts">{shown}</div></header>\n'
        + "\n".join(sections)
        + "\n</main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A titled part of the page. parts: HTML."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def paragraph(text: str, soft: bool = False) -> str:
    """Text, escaped."""
    return f"<p{' class=soft' if soft else ''}>{escape(text)}</p>"


def picture(data: bytes, kind: str, alt: str, small: bool) -> str:
    """An encoded picture inside the page. kind: png or jpeg. small: its pixels are shown large."""
    source = f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
    return f'<img src="{source}" alt="{escape(alt)}"{" class=small" if small else ""}>'


def inline_svg(text: str, name: str) -> str:
    """An SVG file's text as part of a page, in an element with the id `name`: without its prologue
    and namespaces; its ids begin with the name and its style sheet holds only inside, so that
    pictures do not change each other; titles of links are tooltips."""
    text = re.sub(r"<!--.*?-->|<!\[CDATA\[|\]\]>", "", text[text.index("<svg") :], flags=re.S)
    text = re.sub(r"<style[^>]*>(.*?)</style>", rf"<style>#{name}{{\1}}</style>", text, flags=re.S)
    text = re.sub(r'<a xlink:title="([^"]*)">', r"<a><title>\1</title>", text)
    text = re.sub(r"\s(?:xmlns(?::\w+)?|xml:space)=(\"[^\"]*\"|'[^']*')", "", text)
    text = text.replace("xlink:", "")
    text = re.sub(r"(\s(?:id|aria-labelledby)=[\"']|href=[\"']#|url\(#)", rf"\g<1>{name}-", text)
    return f'<div id="{name}" class="scroll drawing">{text}</div>'
