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

from isthmus.cli import render
from isthmus.core.errors import BadInput
from isthmus.core.plain import to_plain
from isthmus.robots.dynamics import resolve_dynamics

if TYPE_CHECKING:
    from isthmus.tasks.task import Task
    from isthmus.validation.certificate import Certificate
    from isthmus.validation.simulated_trials import StageResult
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
    _check_options(args)
    if args.history:
        return _print_agreement(args)
    assert args.controller is not None
    from isthmus.deploy.onnx_controller import OnnxController
    from isthmus.validation import protocol, simulated_trials, trial_sheet
    from isthmus.validation.certificate import Certificate, check_certificate_path, input_hashes
    from isthmus.validation.robot_trials import stage_seed
    from isthmus.validation.stage import check_protocol_fits, default_protocol, set_up_stage

    check_certificate_path(args.out)
    controller = OnnxController.load(args.controller)
    task, belief, where, twin = resolve_test_setup(args.controller, controller, args.on)
    chosen = protocol.load_protocol(args.protocol or default_protocol(task.robot)).with_stages(args.stages)
    check_protocol_fits(chosen, task.robot)
    families = [set_up_stage(stage, task, belief) for stage in chosen.stages]
    seeds = [stage_seed(args.seed, k) for k in range(len(families))]
    if args.plan:
        count = trial_sheet.write_trial_sheet(args.plan, families, seeds)
        render.print_line(f"wrote {count} trials to {args.plan}") if not args.json else render.emit(
            {"plan": str(args.plan), "trials": count}
        )
        return 0
    unit, on = "", args.on or f"the prior of {task.robot.name}"
    if args.link or args.results:
        from isthmus.cli.robot_validation import run_on_robot

        results, unit = run_on_robot(args, controller, families, seeds)
        where, on = "real", args.link or str(args.results)
    else:
        with render.progress_bar(f"validating {args.controller.name}") as bar:
            results = simulated_trials.simulate_stages(
                chosen, task, belief, controller, args.seed, where, bar.update, args.through
            )
    made = Certificate(
        *(args.controller.name, task.name, task.robot.name, on, where, unit, chosen, tuple(results)),
        hashes=input_hashes(controller, task, belief, twin, chosen),
        seed=args.seed,
    )
    made = _with_film(made, dict(zip([f.stage.name for f in families], families, strict=True)))
    return _print_certificate(made, args)


def resolve_test_setup(path: Path, controller, on: str) -> tuple[Task, Belief, str, str]:
    """The task of a controller on what simulates its robot, what is believed of it, what that is, and a twin's hash."""
    from isthmus.deploy.signal_map import SignalMap
    from isthmus.robots import ROBOTS, get_robot
    from isthmus.robots.twin import Twin, is_twin
    from isthmus.tasks.catalogue import get_task

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
    SignalMap.from_contracts(manifest, task.robot.contract)
    if not on or not is_twin(twin):
        return task, task.robot.prior, "prior", ""
    unit, belief = resolve_dynamics(twin, task.robot)
    return task.on(unit), belief, "twin", Twin.load(twin).hash


def _check_options(args: Args) -> None:
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


def _with_film(made: Certificate, families) -> Certificate:
    """With a film of the worst world, if there is one and this machine can draw."""
    failed = made.first_failed
    if failed is None or failed.worst_poses is None:
        return made
    from isthmus.studio.film import render_gif

    film, why = render_gif(families[failed.stage.name].task, *failed.worst_poses)
    return replace(made, worst_world_gif=film, film_problem=why)


def _print_certificate(made: Certificate, args: Args) -> int:
    from isthmus.validation.certificate import DECISION_WORDS, save_certificate

    plain = to_plain(made.to_dict())
    code = 0 if made.passed else 1
    files: list[Path] = []
    try:
        files = save_certificate(made, plain, args.out) if args.out else []
    except BadInput as error:
        # The trials are not lost with the file.
        print(f"isthmus: {error}", file=sys.stderr)
        plain, code = plain | {"error": str(error)}, 2
    if args.json:
        render.emit(plain | {"files": [str(f) for f in files], "exit": code})
        return code
    render.print_line(f"{made.controller} ({made.task}) on {made.tested_on}, protocol {made.protocol.name}")
    render.out.print(
        render.table(
            "",
            ["stage", "", "success", "bounds", "required", "expected", "trials", "fixed size"],
            [_stage_row(s) for s in made.stages],
        )
    )
    for s in made.stages:
        for text in s.skipped_parts:
            render.print_line(f"{s.stage.name}: left out, because {text}.")
        if s.stop_reason:
            render.print_line(f"{s.stage.name}: {s.stop_reason}")
        if s.predicted:
            render.print_line(f"{s.stage.name}: the simulator predicts {s.predicted}.")
        if s.assisted:
            alone = s.assisted["alone"]
            render.print_line(
                f"{s.stage.name}: outcomes and predictions correlate by {s.assisted['correlation']:.2f}; the trials alone have "
                f"it {DECISION_WORDS[alone['decision']]} after {alone['trials']}."
            )
    if made.first_failed:
        _print_failure(made.first_failed, made.film_problem)
    render.print_line("passed" if made.passed else "not passed", "bold green" if made.passed else "bold red")
    for file in files:
        render.print_line(f"wrote {file}")
    return code


def _stage_row(s: StageResult) -> list[str]:
    from isthmus.validation.certificate import DECISION_WORDS

    r = s.rate
    bounds = f"{100 * r.low:.0f} to {100 * r.high:.0f} %"
    return [
        s.stage.name,
        DECISION_WORDS[s.decision],
        f"{100 * r.rate:.0f} %",
        bounds,
        f"{100 * s.stage.required:.0f} %",
        f"{100 * s.stage.expected:.0f} %",
        str(r.n),
        str(s.fixed_size_trials),
    ]


def _print_failure(s: StageResult, no_film: str) -> None:
    for c in s.parameter_differences:
        render.print_line(
            f"{c.name}: {c.failures:.3g} {c.unit} on average where it did not succeed, {c.successes:.3g} where it did."
        )
    rows = [
        [str(w.trial), f"{w.score:.2f}", f"{w.length:.1f} s", ", ".join(f"{n} {w.e[n]:.3g}" for n in w.unusual)]
        for w in s.worst
    ]
    if rows:
        render.out.print(render.table("the worst worlds found", ["trial", "score", "lasted", "unusual numbers"], rows))
    if no_film:
        render.print_line(no_film + ".")


def _print_agreement(args: Args) -> int:
    from isthmus.validation.certificate import load_certificate
    from isthmus.validation.prediction_agreement import agreement, predicted_observed_pairs

    pairs = predicted_observed_pairs([load_certificate(path) for path in args.history])
    if not pairs:
        raise BadInput("none of these certificates has both a predicted and an observed success rate of one stage.")
    stages = list(dict.fromkeys(p.stage for p in pairs))
    found = [agreement(pairs), *(agreement(pairs, stage) for stage in stages if len(stages) > 1)]
    if args.json:
        render.emit({"pairs": [vars(p) for p in pairs], "agreement": [vars(a) for a in found]})
        return 0
    rows = [[p.controller, p.stage, f"{100 * p.predicted:.0f} %", f"{100 * p.observed:.0f} %", str(p.trials)] for p in pairs]
    render.out.print(render.table("", ["controller", "stage", "predicted", "observed", "trials"], rows, right=(2, 3, 4)))
    for a in found:
        what = a.stage or "all stages"
        interval = f" ({a.low:.2f} to {a.high:.2f})" if a.low == a.low else ""
        render.print_line(
            f"{what}: {a.pairs} pairs, Pearson {a.pearson:.2f}{interval}, mean maximum rank violation {a.mmrv:.3f}, "
            f"predicted - observed {a.bias:+.3f}"
        )
    return 0
