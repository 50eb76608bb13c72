"""One HTML file: sections with figures and tables, its style and its script inside."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

PROSE_MIN_CHARACTERS = 28
"""Characters of a cell above which its column is broken into lines where there is little room."""


@dataclass(frozen=True)
class Section:
    title: str
    html: str
    name: str = ""
    """Anchor."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (), names: Sequence[str] = ()) -> str:
    """Cells are text; `names` are anchors of the rows."""
    rows = list(rows)
    prose = {i for row in rows for i, cell in enumerate(row) if len(cell) > PROSE_MIN_CHARACTERS}
    kind = lambda i: " ".join(["r"] * (i in right) + ["t"] * (i in prose))  # noqa: E731
    align = lambda i: f' class="{kind(i)}"' if kind(i) else ""  # noqa: E731
    head = "".join(f"<th{align(i)}>{escape(c)}</th>" for i, c in enumerate(columns))
    body = ""
    for k, row in enumerate(rows):
        anchor = f' id="{escape(names[k])}"' if k < len(names) else ""
        body += f"<tr{anchor}>" + "".join(f"<td{align(i)}>{escape(c)}</td>" for i, c in enumerate(row)) + "</tr>"
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def figure(svg: str, caption: str) -> str:
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def collapsible(title: str, html: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{html}</details>"


def script_json(data: dict[str, Any]) -> str:
    """As JSON for the inside of a script element."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A text in the data must not be able to end the script.
    return text.replace("</", "<\\/").replace("<!--", "<\\u0021--")


def html_page(title: str, sections: Sequence[Section], data: dict[str, Any] | None = None, script: str = "") -> str:
    """`data` is for the script, and for whoever reads the file with a program."""
    opened = lambda s: f'<section id="{escape(s.name)}">' if s.name else "<section>"  # noqa: E731
    body = "".join(f"{opened(s)}<h2>{escape(s.title)}</h2>{s.html}</section>" for s in sections)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{PAGE_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}"
        f'<script type="application/json" id="data">{script_json(data or {})}</script><script>{script}</script></body></html>\n'
    )


PAGE_STYLE = """
:root{--ink:#1c2430;--quiet:#667085;--paper:#fff;--rule:#e4e7ec;--soft:#f5f6f8;--far:#c4320a;--near:#175cd3;--sim:#98a2b3;
--c0:#4269d0;--c1:#c98a00;--c2:#d8432e;--c3:#2f9e86;--c4:#9c6b4e;--c5:#8e44d6;--c6:#2c8a3d;--c7:#d2568d}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ee;--quiet:#98a2b3;--paper:#14181f;--rule:#2b323d;--soft:#1b212a;
--far:#ff7a59;--near:#6ea8ff;--sim:#5b6676;--c0:#8aa5ff;--c1:#efb118;--c2:#ff725c;--c3:#6cc5b0;--c4:#c79a7d;
--c5:#b98cff;--c6:#5fc873;--c7:#ff8ab7}}
@media print{:root{--ink:#000;--quiet:#444;--paper:#fff;--rule:#ccc;--soft:#fff;--far:#c4320a;--near:#175cd3;--sim:#999}
.screen{display:none}section{break-inside:auto}figure,tr{break-inside:avoid}body{max-width:none;padding:0}}
*{box-sizing:border-box}body{margin:0 auto;max-width:54rem;padding:1.5rem 1rem 4rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0 1rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2.2rem 0 .6rem;border-top:1px solid var(--rule);padding-top:1.2rem}
p{margin:.5rem 0;max-width:44rem;overflow-wrap:anywhere}.quiet,figcaption{color:var(--quiet);font-size:.9rem}
.big{font-size:2.6rem;font-weight:650;line-height:1.1;margin:.2rem 0}
.verdict{font-size:1.6rem;font-weight:650;line-height:1.3;margin:.2rem 0 .6rem}
.big small{font-size:1rem;font-weight:400;color:var(--quiet)}
figure{margin:1rem 0}svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font-size:12px}
svg .grid{stroke:var(--rule)}svg .axis,svg .note{fill:var(--quiet)}svg .mark{stroke:var(--quiet);stroke-dasharray:3 3}
svg .line{fill:none;stroke-width:2}svg .band{opacity:.15;stroke:none}svg .span{stroke:var(--sim);stroke-width:7;opacity:.6}
svg .middle{stroke:var(--ink);stroke-width:1.5}svg .truth{fill:none;stroke:var(--ink);stroke-width:1.5}
svg .far{fill:var(--far)}svg .near{fill:var(--near)}svg .sim{fill:var(--sim);opacity:.55}
svg a:focus circle,svg circle.on{stroke:var(--ink);stroke-width:2}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;margin:.5rem 0}
th,td{text-align:left;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--rule);vertical-align:top}
th{color:var(--quiet);font-weight:500}.r{text-align:right}tr:target{background:var(--soft);outline:2px solid var(--near)}
details{margin:.6rem 0}summary{cursor:pointer;color:var(--near)}code{font-size:.85em;overflow-wrap:anywhere}
select{font:inherit;background:var(--soft);color:var(--ink);border:1px solid var(--rule);border-radius:4px;padding:.2rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
.panels{display:grid;grid-template-columns:repeat(var(--n),1fr);gap:.5rem}
.panel{background:var(--soft);border-radius:6px;overflow:hidden}.panel canvas{display:block;width:100%;aspect-ratio:4/3;
cursor:grab;touch-action:pan-y}.label{display:flex;justify-content:space-between;flex-wrap:wrap;gap:0 .6rem;
padding:.35rem .6rem}.label b{font-weight:600}.label b::before{content:"";display:inline-block;width:.65em;height:.65em;
border-radius:50%;margin-right:.4em;background:var(--own)}
.bar{display:flex;flex-wrap:wrap;align-items:center;gap:.4rem .7rem;padding:.5rem 0}
.bar button{font:inherit;width:2.4rem;height:2rem;border:1px solid var(--rule);border-radius:4px;background:var(--soft);
color:var(--ink);cursor:pointer}.bar input[type=range]{flex:1 1 8rem;accent-color:var(--near)}
.bar output{font-variant-numeric:tabular-nums;min-width:4.2rem;text-align:right}.bar label{font-size:.9rem;color:var(--quiet)}
svg .sky{fill:var(--soft)}svg .cells{stroke:var(--rule);stroke-width:1;fill:none}
svg .trail{fill:none;stroke-width:3;opacity:.6}svg .shade{fill:#141923;opacity:.16}
@media screen{.player.on .strip{display:none}}@media print{.player .strip{break-inside:avoid}}
@media (max-width:600px){svg text{font-size:17px}table{font-size:.8rem}td,th{white-space:nowrap;padding-right:.3rem}
.t{white-space:normal;overflow-wrap:anywhere;min-width:7rem}table:has(.t){width:100%}.label,.label span{display:block}}
#card{min-height:3.2rem;background:var(--soft);padding:.5rem .8rem;border-radius:6px}
""" + "".join(
    f"svg .line.c{i}{{stroke:var(--c{i})}}svg .band.c{i},svg .dot.c{i},svg .name.c{i}{{fill:var(--c{i})}}" for i in range(8)
)
