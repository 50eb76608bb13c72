"""The page of a certificate: one HTML file without network access, for screen and paper."""

from __future__ import annotations

import base64
import html
import time
from pathlib import Path

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write
from isthmus.studio.film import NO_FILM, Film, render_film
from isthmus.validation.certificate import DECISION_WORDS, Certificate, save_certificate
from isthmus.validation.simulated_trials import WorstMotion
from isthmus.validation.stage import StageSetup
from isthmus.validation.stage_result import StageResult


class FailureFilm:
    """Keeps the worst motion of the first stage that fails in simulation: `on_stage` is for `validate`."""

    def __init__(self) -> None:
        self._failed: tuple[StageSetup, WorstMotion] | None = None

    def on_stage(self, setup: StageSetup, result: StageResult, motion: WorstMotion | None) -> None:
        if motion is not None and self._failed is None:
            self._failed = setup, motion

    def render(self) -> Film:
        """The film, if a stage failed and this machine can draw."""
        if self._failed is None:
            return NO_FILM
        setup, motion = self._failed
        return render_film(setup.task, motion.poses, motion.interval)


def check_certificate_path(path: Path | None) -> None:
    if path is not None and path.suffix not in (".json", ".html"):
        raise BadInput(f"a certificate is a .json or a .html file, unlike {path}.")


def write_certificate(certificate: Certificate, path: Path, film: Film = NO_FILM) -> list[Path]:
    """Write NAME.json and NAME.html side by side; returns both."""
    check_certificate_path(path)
    files = [path.with_suffix(".json"), path.with_suffix(".html")]
    save_certificate(certificate, files[0])
    atomic_write(files[1], certificate_page(certificate, film).encode())
    return files


PAGE_STYLE = """
body { font: 15px/1.5 Georgia, serif; max-width: 46em; margin: 2em auto; padding: 0 1em; color: #1b1b1b; background: #fff; }
h1 { font-size: 1.6em; margin-bottom: 0; } h2 { font-size: 1.15em; margin-top: 1.8em; }
table { border-collapse: collapse; width: 100%; font: 13px/1.4 Helvetica, Arial, sans-serif; }
th { text-align: left; border-bottom: 1.5px solid #1b1b1b; padding: .3em .6em .3em 0; }
td { border-bottom: 1px solid #ccc; padding: .3em .6em .3em 0; vertical-align: top; }
td.n, th.n { text-align: right; } code { font-size: 12px; word-break: break-all; }
.pass { color: #14632c; } .fail { color: #a11a1a; } .undecided, .open { color: #7a5a00; }
.verdict { font-size: 1.3em; font-weight: bold; } .note { color: #555; font-size: 13px; }
.bar { position: relative; height: 12px; width: 150px; background: #eee; }
.bar i { position: absolute; top: 0; bottom: 0; background: #6b8fb5; } .bar b { position: absolute; top: -2px; bottom: -2px;
width: 2px; background: #a11a1a; } img { border: 1px solid #ccc; }
@media print { body { margin: 0; max-width: none; } h2 { break-after: avoid; } tr { break-inside: avoid; } }
"""


def certificate_page(certificate: Certificate, film: Film = NO_FILM) -> str:
    """HTML page without network access."""
    c, text = certificate, html.escape
    failed = c.first_failed
    verdict = "pass" if c.passed else failed.decision if failed else "open"
    what = {
        "pass": f"All {len(c.stages)} stages passed.",
        "open": "Not all stages were tried.",
    }.get(verdict, f"Stage {failed.name} {DECISION_WORDS[verdict]}." if failed else "")
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(c.created_at))
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{text(c.controller)}: {text(c.protocol)}</title><style>{PAGE_STYLE}</style>",
        f"<h1>{text(c.controller)}</h1>",
        f"<p class=note>{text(c.task)} on {text(c.tested_on)}{text(', unit ' + c.unit if c.unit else '')} · protocol "
        f"{text(c.protocol)}: {text(c.description)} · {date}</p>",
        f"<p class='verdict {verdict}'>{text(what)}</p>",
        _stages_table(c),
        _explanation(c),
    ]
    if failed is not None:
        parts.append(_failure_section(failed, film))
    rows = "".join(
        f"<tr><td>{text(k)}</td><td><code>{text(v)}</code></td></tr>" for k, v in (*c.inputs.items(), ("this", c.hash))
    )
    parts.append(f"<h2>Hashes</h2><table>{rows}</table><p class=note>Seed {c.seed}.</p></html>")
    return "\n".join(parts)


def _stages_table(c: Certificate) -> str:
    real = any(stage.environment == "real" for stage in c.stages)
    head = "<tr><th>stage<th>result<th class=n>success<th>bounds<th class=n>trials<th class=n>fixed size"
    rows = [head + ("<th class=n>predicted</tr>" if real else "</tr>")]
    for s in c.stages:
        r = s.success
        low, high = 100 * r.low, 100 * r.high
        span = f"left:{low:.1f}%;width:{max(high - low, 0.5):.1f}%"
        bar = f"<div class=bar><i style='{span}'></i><b style='left:{100 * s.required:.1f}%'></b></div>"
        predicted = f"<td class=n>{100 * s.predicted.rate:.0f} %" if s.predicted else "<td class=n>"
        rows.append(
            f"<tr><td><b>{html.escape(s.name)}</b><br><span class=note>{html.escape(s.description)}</span>"
            f"<td class={s.decision}>{DECISION_WORDS[s.decision]}<td class=n>{100 * r.rate:.0f} %"
            f"<td>{bar}<span class=note>{low:.0f} to {high:.0f} %, required {100 * s.required:.0f}, "
            f"expected {100 * s.expected:.0f} %</span>"
            f"<td class=n>{r.n}<td class=n>{s.fixed_size_trials}{predicted if real else ''}</tr>"
        )
    for name in c.not_reached:
        rows.append(f"<tr><td><b>{html.escape(name)}</b><td class=note colspan=6>not reached</tr>")
    left = "".join(f"<li>{html.escape(s.name)}: {html.escape(x)}</li>" for s in c.stages for x in s.omitted)
    return f"<table>{''.join(rows)}</table>" + (f"<p class=note>Omitted:</p><ul class=note>{left}</ul>" if left else "")


def _explanation(c: Certificate) -> str:
    g = c.stages[0]
    where = "worlds drawn as the stage says" if c.environment != "real" else "trials on the robot"
    lines = (
        f"Success is measured over {where}. A stage passes when the lower bound (bar) reaches the required rate (red): at or "
        f"below that rate this happens with a probability of at most {100 * g.false_pass:g} %, although the test looks after "
        f"every trial. It fails when the upper bound falls to the expected rate, which at or above that rate happens with at "
        f"most {100 * g.false_fail:g} %."
    )
    extra = ""
    if c.environment == "prior":
        extra = (
            " No twin of a unit was given: the worlds are those that training assumes, and this says nothing of a real robot."
        )
    return f"<p class=note>{html.escape(lines + extra)}</p>"


def _failure_section(s: StageResult, film: Film) -> str:
    text, parts = html.escape, [f"<h2>Why {html.escape(s.name)} {DECISION_WORDS[s.decision]}</h2>"]
    for x in s.parameter_differences:
        parts.append(
            f"<p>{text(x.name)} is {x.failures:.3g} {text(x.unit)} on average where it did not succeed, and {x.successes:.3g} "
            f"where it did ({abs(x.z):.1f} standard errors apart).</p>"
        )
    if s.worst:
        rows = ["<tr><th class=n>trial<th class=n>score<th>ended<th>unusual parameters</tr>"]
        for w in s.worst:
            unusual = ", ".join(f"{name} {w.e[name]:.3g}" for name in w.unusual) or "none"
            ended = f"failed after {w.length:.1f} s" if w.failed else "lasted, but scored too little"
            rows.append(f"<tr><td class=n>{w.trial}<td class=n>{w.score:.2f}<td>{ended}<td>{text(unusual)}</tr>")
        parts.append(f"<p>The worst worlds found:</p><table>{''.join(rows)}</table>")
    if film.gif:
        picture = base64.b64encode(film.gif).decode()
        parts.append(
            f"<p class=note>The worst world:</p><img alt='film of the worst world' src='data:image/gif;base64,{picture}'>"
        )
    elif film.problem:
        parts.append(f"<p class=note>{text(film.problem)}.</p>")
    return "\n".join(parts)
