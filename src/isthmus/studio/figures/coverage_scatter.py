"""Recorded and simulated windows on two axes: every recorded point is a link to its episode and second."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from isthmus.real2sim.measure.coverage import Coverage
from isthmus.studio.figures.axes import Axis, axes_grid, fitted_axis, svg_figure

MAX_SIMULATED_POINTS = 1500
"""Simulated points, at most."""
WIDTH, HEIGHT = 640, 440
SELECTABLE_AXES = 4
"""Axes that can be chosen."""


def scatter_svg(c: Coverage, names: Sequence[str]) -> str:
    """The first two axes; a script may choose others."""
    sim = np.unique(np.linspace(0, len(c.sim_points) - 1, MAX_SIMULATED_POINTS).round().astype(int))
    ax, ay = _scatter_axis(c, 0, 56, WIDTH - 16), _scatter_axis(c, 1, HEIGHT - 42, 12)
    parts = [f'<g class="grids">{axes_grid(ax, ay)}</g>']
    for i in sim.tolist():
        x, y = ax(c.sim_points[i, 0]), ay(c.sim_points[i, 1])
        parts.append(f'<circle class="sim" data-s="{i}" cx="{x}" cy="{y}" r="2"/>')
    for i in np.argsort(c.distance, kind="stable").tolist():
        kind = "far" if c.distance[i] > 1.0 else "near"
        text = f"{names[int(c.recording[i])]}, {c.second[i]:.2f} s, {c.distance[i]:.2f} times the threshold"
        parts.append(
            f'<a href="#window-{i}"><circle class="{kind}" data-r="{i}" cx="{ax(c.real_points[i, 0])}" '
            f'cy="{ay(c.real_points[i, 1])}" r="4">'
            f"<title>{escape(text)}</title></circle></a>"
        )
    return svg_figure("".join(parts), WIDTH, HEIGHT, "windows of the recordings among those of simulated worlds", "scatter")


def _scatter_axis(c: Coverage, k: int, start: float, end: float) -> Axis:
    both = np.concatenate([c.sim_points[:, k], c.real_points[:, k]])
    return fitted_axis(axis_name(c, k), [float(both.min()), float(both.max())], start, end)


def axis_name(c: Coverage, k: int) -> str:
    if k >= len(c.axes.explained_variance):
        return "what the axes do not hold"
    return f"axis {k + 1}, {100 * c.axes.explained_variance[k]:.0f} % of the variance"


def scatter_data(c: Coverage, names: Sequence[str]) -> dict[str, Any]:
    """What the script draws from."""
    sim = np.unique(np.linspace(0, len(c.sim_points) - 1, MAX_SIMULATED_POINTS).round().astype(int))
    columns = [*range(min(SELECTABLE_AXES, len(c.axes.explained_variance))), len(c.axes.explained_variance)]
    why = {(u.recording, round(u.second, 6)): ", ".join(u.why) for u in c.uncovered_windows}
    return {
        "axes": [axis_name(c, k) for k in columns],
        "sim": {str(i): [round(float(c.sim_points[i, k]), 3) for k in columns] for i in sim},
        "real": [[round(float(row[k]), 3) for k in columns] for row in c.real_points],
        "about": [
            {
                "file": names[r],
                "second": round(float(s), 3),
                "distance": round(float(d), 3),
                "why": why.get((int(r), round(float(s), 6)), ""),
            }
            for r, s, d in zip(c.recording, c.second, c.distance, strict=True)
        ],
    }


SCATTER_SCRIPT = """
(function(){var box=document.getElementById('data'),svg=document.getElementById('scatter');if(!box||!svg)return;
var d=JSON.parse(box.textContent).scatter,card=document.getElementById('card'),tools=document.getElementById('tools');
var last=null;function tell(c){if(last)last.classList.remove('on');last=c;c.classList.add('on');
var a=d.about[+c.dataset.r];card.textContent=a.file+' at '+a.second.toFixed(2)+' s: '+a.distance.toFixed(2)+
' times the threshold'+(a.why?', '+a.why:', covered')}
svg.querySelectorAll('circle[data-r]').forEach(function(c){c.addEventListener('mouseenter',function(){tell(c)});
c.parentNode.addEventListener('focus',function(){tell(c)});c.addEventListener('click',function(){tell(c);
var row=document.getElementById('window-'+c.dataset.r);for(var p=row;p;p=p.parentNode)if(p.tagName==='DETAILS')p.open=true})});
function choice(text,at){var s=document.createElement('select');s.setAttribute('aria-label',text);
d.axes.forEach(function(n,i){s.add(new Option(n,i))});s.value=at;tools.append(text+' ',s,' ');s.onchange=draw;return s}
var sx=choice('across',0),sy=choice('up',1);
function range(k){var lo=1e300,hi=-1e300;d.real.concat(Object.values(d.sim)).forEach(function(r){lo=Math.min(lo,r[k]);
hi=Math.max(hi,r[k])});var p=.05*(hi-lo)||.5;return[lo-p,hi+p]}
function draw(){var x=+sx.value,y=+sy.value,rx=range(x),ry=range(y);svg.querySelector('.grids').style.display=
(x===0&&y===1)?'':'none';svg.querySelectorAll('circle').forEach(function(c){var r=c.dataset.r!==undefined?d.real[+c.dataset.r]:
d.sim[c.dataset.s];c.setAttribute('cx',56+(r[x]-rx[0])/(rx[1]-rx[0])*568);
c.setAttribute('cy',398-(r[y]-ry[0])/(ry[1]-ry[0])*386)})}
})();
"""
