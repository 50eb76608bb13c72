"""Put a controller through a protocol: stage by stage, with known error rates, in simulation or on a robot.

example: isthmus validate a.controller --on unit7.twin -o a.html

example: isthmus validate a.controller --on unit7.twin --link zenoh -o a.html

example: isthmus validate --history certificates/*.json
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from isthmus.cli import show
from isthmus.cli.worlds import task_on, worlds_of
from isthmus.errors import BadInput

if TYPE_CHECKING:
    from isthmus.tasks.task import Task
    from isthmus.validate.campaign import Result
    from isthmus.validate.certificate import Certificate
    from isthmus.world import Belief


@dataclass(frozen=True)
class Args:
    controller: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[CONTROLLER]")] = None
    """File of the controller."""
    on: str = ""
    """What simulates the robot: a twin, or the robot's name for the worlds that training assumes (the default)."""
    protocol: str = ""
    """Name of a protocol (legged, aerial, bench) or a file (TOML); by default the one for this kind of robot."""
    stages: tuple[str, ...] = ()
    """Only these stages of it."""
    link: str = ""
    """Try it on a robot over this link, as `isthmus run` does."""
    plan: Path | None = None
    """Write the conditions of all trials into this table (CSV) and do nothing else."""
    results: Path | None = None
    """The same table with the outcomes of trials on a robot filled in."""
    sim_worlds: int = 1000
    """On a robot: trials of the simulator that help; 0 for real trials only."""
    through: bool = False
    """Go on after a stage that does not pass; in simulation only."""
    seed: int = 0
    """Seed of worlds and conditions."""
    yes: bool = False
    """Do not ask the operator before each trial; for virtual robots."""
    record: Path | None = None
    """Folder for a recording of each trial on a robot."""
    speed: float = 1.0
    """Times real time, for a virtual robot that was started with the same --speed."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Certificate: NAME.html or NAME.json; both are written."""
    history: tuple[Path, ...] = ()
    """Certificates over which predicted and observed success are compared."""
    json: bool = False
    """Print one JSON object instead of text."""


def run(args: Args) -> int:
    _check(args)
    if args.history:
        return _history(args)
    assert args.controller is not None
    from isthmus.deploy.controller import Controller
    from isthmus.validate import campaign, protocol, sheet
    from isthmus.validate.certificate import Certificate, check_place, hashes_of
    from isthmus.validate.real import seed_for
    from isthmus.validate.worlds import check_fits, default_protocol, family

    check_place(args.out)
    controller = Controller.load(args.controller)
    task, belief, where, twin = tested(args.controller, controller, args.on)
    chosen = protocol.load(args.protocol or default_protocol(task.robot)).only(args.stages)
    check_fits(chosen, task.robot)
    families = [family(stage, task, belief) for stage in chosen.stages]
    seeds = [seed_for(args.seed, k) for k in range(len(families))]
    if args.plan:
        count = sheet.write(args.plan, families, seeds)
        show.say(f"wrote {count} trials to {args.plan}") if not args.json else show.emit(
            {"plan": str(args.plan), "trials": count}
        )
        return 0
    unit, on = "", args.on or f"the prior of {task.robot.name}"
    if args.link or args.results:
        from isthmus.cli.validated import on_robot

        results, unit = on_robot(args, controller, families, seeds)
        where, on = "real", args.link or str(args.results)
    else:
        with show.bar(f"validating {args.controller.name}") as bar:
            results = campaign.run(chosen, task, belief, controller, args.seed, where, bar.update, args.through)
    made = Certificate(
        *(args.controller.name, task.name, task.robot.name, on, where, unit, chosen, tuple(results)),
        hashes=hashes_of(controller, task, belief, twin, chosen),
        seed=args.seed,
    )
    made = _filmed(made, dict(zip([f.stage.name for f in families], families, strict=True)))
    return _show(made, args)


def tested(path: Path, controller, on: str) -> tuple[Task, Belief, str, str]:
    """The task of a controller on what simulates its robot, what is believed of it, what that is, and a twin's hash."""
    from isthmus.deploy.fit import Fit
    from isthmus.identify.twin import Twin, is_twin
    from isthmus.robots import ROBOTS, get_robot
    from isthmus.tasks import get_task

    manifest = controller.manifest
    try:
        task = get_task(manifest.task)
    except BadInput as error:
        raise BadInput(f"{path} was made for a task that is not known here: {error}") from None
    twin = Path(on)
    if on and not is_twin(twin):
        if on not in ROBOTS and twin.is_file() and twin.suffix not in (".xml", ".urdf", ".toml"):
            raise BadInput(f"--on takes a robot or a twin (.twin), and {on} is neither.")
        if on not in ROBOTS and not twin.exists():
            get_robot(on)
        if on != task.robot.name:
            raise BadInput(f"{path} is a controller of {task.robot.name}, not of {on}.")
    if manifest.model_hash != task.robot.model_hash:
        raise BadInput(f"{path} was trained with another model of {task.robot.name} than the one that is here.")
    Fit.of(manifest, task.robot.contract)
    if not on or not is_twin(twin):
        return task, task.robot.prior, "prior", ""
    unit, belief = worlds_of(twin, task.robot)
    return task_on(task, unit), belief, "twin", Twin.load(twin).hash


def _check(args: Args) -> None:
    if (args.controller is None) == (not args.history):
        raise BadInput("say which controller to validate, or --history with certificates to compare.")
    if args.link and args.results:
        raise BadInput("trials happen over a link or are read from a table: give --link or --results, not both.")
    if args.seed < 0 or args.sim_worlds < 0:
        raise BadInput("--seed and --sim-worlds must not be negative.")
    if 0 < args.sim_worlds < 50:
        raise BadInput("--sim-worlds must be 0, or at least 50.")
    if args.through and (args.link or args.results):
        raise BadInput("on a robot the first stage that does not pass ends it; --through does not go with --link or --results.")
    if (args.record or args.yes) and not args.link:
        raise BadInput("--record and --yes go with --link.")


def _filmed(made: Certificate, families) -> Certificate:
    """With a film of the worst world, if there is one and this machine can draw."""
    failed = made.failed
    if failed is None or failed.film is None:
        return made
    from isthmus.validate.film import draw

    film, why = draw(families[failed.stage.name].task, *failed.film)
    return replace(made, film=film, no_film=why)


def _show(made: Certificate, args: Args) -> int:
    from isthmus.validate.certificate import WORDS, save

    plain = show.plain(made.to_dict())
    code = 0 if made.passed else 1
    files: list[Path] = []
    try:
        files = save(made, plain, args.out) if args.out else []
    except BadInput as error:
        # The trials are not lost with the file.
        print(f"isthmus: {error}", file=sys.stderr)
        plain, code = plain | {"error": str(error)}, 2
    if args.json:
        show.emit(plain | {"files": [str(f) for f in files], "exit": code})
        return code
    show.say(f"{made.controller} ({made.task}) on {made.on}, protocol {made.protocol.name}")
    show.out.print(
        show.table(
            "",
            ["stage", "", "success", "bounds", "required", "expected", "trials", "fixed size"],
            [_row(s) for s in made.stages],
        )
    )
    for s in made.stages:
        for text in s.left_out:
            show.say(f"{s.stage.name}: left out, because {text}.")
        if s.stopped:
            show.say(f"{s.stage.name}: {s.stopped}")
        if s.predicted:
            show.say(f"{s.stage.name}: the simulator predicts {s.predicted}.")
        if s.assisted:
            alone = s.assisted["alone"]
            show.say(
                f"{s.stage.name}: outcomes and predictions correlate by {s.assisted['correlation']:.2f}; the trials alone have "
                f"it {WORDS[alone['decision']]} after {alone['trials']}."
            )
    if made.failed:
        _why(made.failed, made.no_film)
    show.say("passed" if made.passed else "not passed", "bold green" if made.passed else "bold red")
    for file in files:
        show.say(f"wrote {file}")
    return code


def _row(s: Result) -> list[str]:
    from isthmus.validate.certificate import WORDS

    r = s.rate
    bounds = f"{100 * r.low:.0f} to {100 * r.high:.0f} %"
    return [
        s.stage.name,
        WORDS[s.decision],
        f"{100 * r.rate:.0f} %",
        bounds,
        f"{100 * s.stage.required:.0f} %",
        f"{100 * s.stage.expected:.0f} %",
        str(r.n),
        str(s.fixed),
    ]


def _why(s: Result, no_film: str) -> None:
    for c in s.common:
        show.say(f"{c.name}: {c.failures:.3g} {c.unit} on average where it did not succeed, {c.successes:.3g} where it did.")
    rows = [
        [str(w.trial), f"{w.score:.2f}", f"{w.length:.1f} s", ", ".join(f"{n} {w.e[n]:.3g}" for n in w.unusual)]
        for w in s.worst
    ]
    if rows:
        show.out.print(show.table("the worst worlds found", ["trial", "score", "lasted", "unusual numbers"], rows))
    if no_film:
        show.say(no_film + ".")


def _history(args: Args) -> int:
    from isthmus.validate.certificate import load
    from isthmus.validate.history import agreement, pairs_of

    pairs = pairs_of([load(path) for path in args.history])
    if not pairs:
        raise BadInput("none of these certificates has both a predicted and an observed success rate of one stage.")
    stages = list(dict.fromkeys(p.stage for p in pairs))
    found = [agreement(pairs), *(agreement(pairs, stage) for stage in stages if len(stages) > 1)]
    if args.json:
        show.emit({"pairs": [vars(p) for p in pairs], "agreement": [vars(a) for a in found]})
        return 0
    rows = [[p.controller, p.stage, f"{100 * p.predicted:.0f} %", f"{100 * p.observed:.0f} %", str(p.trials)] for p in pairs]
    show.out.print(show.table("", ["controller", "stage", "predicted", "observed", "trials"], rows, right=(2, 3, 4)))
    for a in found:
        what = a.stage or "all stages"
        interval = f" ({a.low:.2f} to {a.high:.2f})" if a.low == a.low else ""
        show.say(
            f"{what}: {a.pairs} pairs, Pearson {a.pearson:.2f}{interval}, mean maximum rank violation {a.mmrv:.3f}, "
            f"predicted - observed {a.bias:+.3f}"
        )
    return 0
