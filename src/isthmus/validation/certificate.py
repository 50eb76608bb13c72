"""What was shown, and of what: JSON for machines, one page without network for people and paper."""

from __future__ import annotations

import base64
import html
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isthmus.core.errors import BadInput
from isthmus.core.files import atomic_write, content_hash, read_json, write_json
from isthmus.deploy.controller import Controller
from isthmus.tasks.task import Task
from isthmus.validation.protocol import Protocol
from isthmus.validation.simulated_trials import StageResult
from isthmus.world import Belief

CERTIFICATE_KIND = "certificate"
DECISION_WORDS = {"pass": "passed", "fail": "failed", "undecided": "not decided", "open": "not finished"}


@dataclass(frozen=True)
class Certificate:
    controller: str
    """Name of its file."""
    task: str
    robot: str
    tested_on: str
    """What it was tried on: a twin's file, the robot's prior or a link."""
    environment: str
    """`twin`, `prior` or `real`."""
    unit: str
    """The specimen, where there is one."""
    protocol: Protocol
    stages: tuple[StageResult, ...]
    hashes: Mapping[str, str]
    """Of the controller, the run it came from, the robot's model, the belief, the twin and the protocol."""
    seed: int
    created_at: float = field(default_factory=time.time)
    """s since 1970."""
    worst_world_gif: bytes = field(default=b"", repr=False)
    """GIF of the worst world of the stage that did not pass."""
    film_problem: str = ""

    @property
    def passed(self) -> bool:
        return len(self.stages) == len(self.protocol.stages) and all(stage.passed for stage in self.stages)

    @property
    def first_failed(self) -> StageResult | None:
        """The first stage that did not pass."""
        return next((stage for stage in self.stages if not stage.passed), None)

    def to_dict(self) -> dict[str, Any]:
        own = {
            "kind": CERTIFICATE_KIND,
            "passed": self.passed,
            "controller": self.controller,
            "task": self.task,
            "robot": self.robot,
            "on": self.tested_on,
            "where": self.environment,
            "unit": self.unit,
            "protocol": self.protocol.name,
            "seed": self.seed,
            "time": self.created_at,
            "hashes": dict(self.hashes),
            "stages": [stage.to_dict() for stage in self.stages],
            "not_reached": [stage.name for stage in self.protocol.stages[len(self.stages) :]],
            "film": "in the page" if self.worst_world_gif else self.film_problem,
        }
        return own


def input_hashes(controller: Controller, task: Task, belief: Belief, twin: str, protocol: Protocol) -> dict[str, str]:
    found = {
        "controller": controller.hash,
        "run": controller.manifest.run_hash,
        "model": task.robot.model_hash,
        "belief": belief.hash,
        "protocol": protocol.hash,
    }
    return found | ({"twin": twin} if twin else {})


def check_certificate_path(path: Path | None) -> None:
    if path is not None and path.suffix not in (".json", ".html"):
        raise BadInput(f"a certificate is a .json or a .html file, unlike {path}.")


def save_certificate(certificate: Certificate, plain: dict[str, Any], path: Path) -> list[Path]:
    """Both forms, side by side; `plain` is the certificate as JSON can hold it."""
    files = [path.with_suffix(".json"), path.with_suffix(".html")]
    whole = plain | {"hash": content_hash(plain)}
    write_json(files[0], whole)
    atomic_write(files[1], certificate_page(certificate, whole["hash"]).encode())
    return files


def load_certificate(path: Path) -> dict[str, Any]:
    """A certificate as plain data; one that was changed is an error."""
    found = read_json(path)
    if found.get("kind") != CERTIFICATE_KIND or not isinstance(found.get("stages"), list):
        raise BadInput(f"{path} is not a certificate.")
    own = {k: v for k, v in found.items() if k != "hash"}
    if content_hash(own) != found.get("hash"):
        raise BadInput(f"{path} was changed after it was written: its hash does not fit.")
    return found


# The page ----------------------------------------------------------------------------------------------------------

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


def certificate_page(certificate: Certificate, own_hash: str) -> str:
    c, text = certificate, html.escape
    failed = c.first_failed
    verdict = "pass" if c.passed else failed.decision if failed else "open"
    what = {
        "pass": f"All {len(c.stages)} stages passed.",
        "open": "Not all stages were tried.",
    }.get(verdict, f"Stage {failed.stage.name} {DECISION_WORDS[verdict]}." if failed else "")
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(c.created_at))
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{text(c.controller)}: {text(c.protocol.name)}</title><style>{PAGE_STYLE}</style>",
        f"<h1>{text(c.controller)}</h1>",
        f"<p class=note>{text(c.task)} on {text(c.tested_on)}{text(', unit ' + c.unit if c.unit else '')} · protocol "
        f"{text(c.protocol.name)}: {text(c.protocol.doc)} · {date}</p>",
        f"<p class='verdict {verdict}'>{text(what)}</p>",
        _stages_table(c),
        _explanation(c),
    ]
    if failed is not None:
        parts.append(_failure_section(c, failed))
    rows = "".join(
        f"<tr><td>{text(k)}</td><td><code>{text(v)}</code></td></tr>" for k, v in (*c.hashes.items(), ("this", own_hash))
    )
    parts.append(f"<h2>Hashes</h2><table>{rows}</table><p class=note>Seed {c.seed}.</p></html>")
    return "\n".join(parts)


def _stages_table(c: Certificate) -> str:
    real = any(stage.environment == "real" for stage in c.stages)
    head = "<tr><th>stage<th>result<th class=n>success<th>bounds<th class=n>trials<th class=n>fixed size"
    rows = [head + ("<th class=n>predicted</tr>" if real else "</tr>")]
    for s in c.stages:
        r = s.rate
        low, high = 100 * r.low, 100 * r.high
        span = f"left:{low:.1f}%;width:{max(high - low, 0.5):.1f}%"
        bar = f"<div class=bar><i style='{span}'></i><b style='left:{100 * s.stage.required:.1f}%'></b></div>"
        predicted = f"<td class=n>{100 * s.predicted.rate:.0f} %" if s.predicted else "<td class=n>"
        rows.append(
            f"<tr><td><b>{html.escape(s.stage.name)}</b><br><span class=note>{html.escape(s.stage.doc)}</span>"
            f"<td class={s.decision}>{DECISION_WORDS[s.decision]}<td class=n>{100 * r.rate:.0f} %"
            f"<td>{bar}<span class=note>{low:.0f} to {high:.0f} %, required {100 * s.stage.required:.0f}, "
            f"expected {100 * s.stage.expected:.0f} %</span>"
            f"<td class=n>{r.n}<td class=n>{s.fixed_size_trials}{predicted if real else ''}</tr>"
        )
    for stage in c.protocol.stages[len(c.stages) :]:
        rows.append(f"<tr><td><b>{html.escape(stage.name)}</b><td class=note colspan=6>not reached</tr>")
    left = "".join(f"<li>{html.escape(s.stage.name)}: {html.escape(x)}</li>" for s in c.stages for x in s.skipped_parts)
    return f"<table>{''.join(rows)}</table>" + (f"<p class=note>Left out:</p><ul class=note>{left}</ul>" if left else "")


def _explanation(c: Certificate) -> str:
    g = c.protocol.stages[0]
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


def _failure_section(c: Certificate, s: StageResult) -> str:
    text, parts = html.escape, [f"<h2>Why {html.escape(s.stage.name)} {DECISION_WORDS[s.decision]}</h2>"]
    for x in s.parameter_differences:
        parts.append(
            f"<p>{text(x.name)} is {x.failures:.3g} {text(x.unit)} on average where it did not succeed, and {x.successes:.3g} "
            f"where it did ({abs(x.z):.1f} standard errors apart).</p>"
        )
    if s.worst:
        rows = ["<tr><th class=n>trial<th class=n>score<th>ended<th>unusual numbers</tr>"]
        for w in s.worst:
            unusual = ", ".join(f"{name} {w.e[name]:.3g}" for name in w.unusual) or "none"
            ended = f"failed after {w.length:.1f} s" if w.failed else "lasted, but scored too little"
            rows.append(f"<tr><td class=n>{w.trial}<td class=n>{w.score:.2f}<td>{ended}<td>{text(unusual)}</tr>")
        parts.append(f"<p>The worst worlds found:</p><table>{''.join(rows)}</table>")
    if c.worst_world_gif:
        picture = base64.b64encode(c.worst_world_gif).decode()
        parts.append(
            f"<p class=note>The worst of them:</p><img alt='film of the worst world' src='data:image/gif;base64,{picture}'>"
        )
    elif c.film_problem:
        parts.append(f"<p class=note>{text(c.film_problem)}.</p>")
    return "\n".join(parts)
