"""Which law do the motors follow? The simplest that predicts what it was not fitted to as well as any.

    measured    torques were recorded: laws are driven through the recorded motion and compared with them
    unseen      no torque was recorded: laws drive the simulated robot, whose motion is compared with the recorded one

Every rung of the ladder is fitted, then a network on top of the best; of unseen torques until nothing but noise is left. A rung
counts as better only if what it predicts better is more than chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from isthmus.real2sim.identify.fit import Fit, find_minimum, fit, noise_by_signal, sensor_noise_factors
from isthmus.real2sim.identify.force_features import with_learned_force
from isthmus.real2sim.identify.learned_force import learn_force
from isthmus.real2sim.identify.model_selection import AS_BELIEVED, Candidate, best_world, choose, evaluate, relative_errors
from isthmus.real2sim.identify.motor_bench import BenchData, bench_features, fit_law, law_torque, learn_torque_remainder
from isthmus.real2sim.identify.motor_laws import (
    DELAY_PARAMETER,
    LAW_PARAMETER_PREFIX,
    MOTOR_LAW_TERMS,
    MotorLawTerm,
    fitted_figures,
    law_parameters,
    motor_figures_without_losses,
)
from isthmus.real2sim.prepare.segments import Segments
from isthmus.real2sim.residual.prior import extend_space, free_parameters, reset_to_bounds
from isthmus.sim.physics.learned_force import LearnedForce
from isthmus.sim.physics.motor_figures import GEAR_FIELDS, motor_parameters
from isthmus.sim.physics.unit_physics import UnitPhysics
from isthmus.sim.robot import Robot
from isthmus.world import Belief, Param, Space

NETWORK = "network"
SPRING_PARAMETER, SPRING_VALUES_SCANNED = f"{LAW_PARAMETER_PREFIX}spring", 16
"""Parameter of a law: how stiff a gear is; so many values are looked at before one is fitted."""
BLOCK_COUNT, HELD_OUT_EVERY = 10, 5
"""Of pieces on a bench, and one in so many of them is held out."""
Report = Callable[[float], None]


@dataclass(frozen=True)
class MotorModel:
    """The chosen law of some motors of a robot."""

    labels: tuple[str, ...]
    chosen_law: str
    candidates: tuple[Candidate, ...]
    motor_figures: dict[str, tuple[float, ...]]
    """Figures that differ from the design's, one number per motor of the robot."""
    learned: LearnedForce | None
    rate: float
    """Hz of the recording that it was fitted to."""
    unit: str
    command_delay: float = 0.0
    """s that commands take; part of the link, not of the motors."""


def fit_to_torque(robot: Robot, bench: BenchData, report: Report = lambda done: None) -> MotorModel:
    """Where torques were measured."""
    block = np.arange(len(bench)) * BLOCK_COUNT // len(bench)
    out = block % HELD_OUT_EVERY == HELD_OUT_EVERY // 2 if len(bench) >= BLOCK_COUNT else np.arange(len(bench)) % 2 == 1
    train, held = bench.take(~out), bench.take(out)
    extra: tuple[Param, ...] = ()
    tried: list[Candidate] = []
    laws: dict[str, tuple[Param, ...]] = {}
    bare = replace(
        robot, space=Space(()), prior=Belief(Space(())), unit=UnitPhysics(motor_figures_without_losses(robot, bench.labels))
    )
    values = np.zeros(0)
    # A motor's torque does not show what the gear behind it makes of it.
    ladder = [r for r in MOTOR_LAW_TERMS if not set(r.fields) & set(GEAR_FIELDS)]
    for i, rung in enumerate(ladder):
        new = law_parameters(bare, bench.labels, rung)
        report(i / (len(ladder) + 1))
        if not new:
            continue
        extra = (*extra, *new)
        space = Space(extra)
        values = fit_law(bare, train, extra, np.concatenate([values, [p.nominal for p in new]]))
        miss = [((law_torque(bare, b, space, values[None])[0] - b.compared_torque) ** 2).mean(1) for b in (train, held)]
        laws[rung.name] = extra
        tried.append(Candidate.from_errors(rung.name, dict(zip(space.names, map(float, values), strict=True)), *miss))
    base = choose(tried)
    space = Space(laws[base.name])
    at = np.array([base.values[name] for name in space.names])
    given = [law_torque(bare, b, space, at[None])[0] for b in (train, held)]
    learned = learn_torque_remainder(bare, train, given[0])
    miss = []
    for b, g in zip((train, held), given, strict=True):
        x = bench_features(bare, b, learned)
        added = learned.net(x.reshape(-1, x.shape[-1])).reshape(g.shape)
        miss.append(((g + added - b.compared_torque) ** 2).mean(1))
    tried.append(Candidate.from_errors(NETWORK, base.values, *miss))
    chosen = choose([base, tried[-1]])
    motors = fitted_figures(bare, space.params, base.values)
    network = learned if chosen is tried[-1] else None
    delay = base.values.get(DELAY_PARAMETER, 0.0)
    return MotorModel(bench.labels, chosen.name, tuple(tried), motors, network, 1.0 / bench.dt, "N·m", delay)


@dataclass(frozen=True)
class MotorIdentification:
    """What recordings without torques say of motors."""

    motor_model: MotorModel
    belief: Belief
    """Of the robot's own parameters, with the law in force."""
    unexplained_noise: dict[str, float]
    """σ by signal of what the last fit left; empty if nothing was fitted."""


def fit_to_motion(
    robot: Robot,
    train: Segments,
    held_out: Segments,
    belief: Belief,
    noise: np.ndarray,
    labels: Sequence[str],
    threads: int = 0,
    report: Report = lambda done: None,
    prior_belief: Belief | None = None,
    law_terms: Sequence[MotorLawTerm] = MOTOR_LAW_TERMS,
) -> MotorIdentification:
    """Where no torque was measured; also what is then believed of the robot's own parameters. `ladder` names laws to try.

    The robot's own figures of its motors are searched again with every law, whatever was believed of them: a fit without the
    right law has bent them to make up for it. All other numbers are, too, with the law that is chosen, from what was believed
    `before` these recordings, by default `belief`. What is believed in the end is from that fit, whatever the law's figures
    are; with a network, and where held-out pieces speak against that fit, from one with all of the law in force.
    """
    labels, numbers, prior_belief = (
        tuple(labels),
        free_parameters(robot, belief),
        belief if prior_belief is None else prior_belief,
    )
    own = tuple(n for n in motor_parameters(robot) if n in numbers)
    first = reset_to_bounds(prior_belief, own)
    pieces = _FitData(train, held_out, noise, threads)
    tried, found = _fit_laws(robot, pieces, reset_to_bounds(belief, own), own, labels, law_terms, report)
    base, last = choose(tried), None
    extra, e = found[base.name]
    if base is not tried[0] and numbers:
        others = [robot.space.index(n) for n in numbers if n not in own]
        unbent = e.copy()
        unbent[others] = prior_belief.median()[others]
        larger, wide = extend_space(robot, first, extra)
        whole = _fit_jointly(larger, pieces, wide, (*numbers, *(p.name for p in extra)), (e, unbent))
        again = pieces.evaluate(base.name, {n: whole.value(n) for n in base.values}, larger, whole.e)
        if choose([again, base]) is again:
            tried = [again if t is base else t for t in tried]
            # A delay of the law is no figure of a motor: nothing keeps it, and what was found beside it does not stay.
            base, e, last = again, whole.e, None if DELAY_PARAMETER in base.values else whole
    motors = fitted_figures(robot, extra, base.values)
    here = replace(robot, unit=replace(robot.unit, motors=motors))
    world = e[: len(robot.space)]
    chosen, network = base, None
    if not base.leaves_only_noise:
        learned = learn_force(here, train, world, noise, "motor", labels, threads=threads)
        forced = with_learned_force(here, learned)
        tried.append(pieces.evaluate(NETWORK, base.values, forced, world))
        if (chosen := choose([base, tried[-1]])) is not base:
            here, network, last = forced, learned, None
    actuator = MotorModel(labels, chosen.name, tuple(tried), motors, network, robot.contract.rate, "noise")
    if chosen is tried[0] or not numbers:
        return MotorIdentification(actuator, belief, {})
    report((len(law_terms) + 1) / (len(law_terms) + 2))
    last = last or pieces.fit(here, first, numbers, world)
    return MotorIdentification(
        actuator,
        belief.with_factors(last.factor(numbers), *sensor_noise_factors(robot, last)),
        noise_by_signal(robot, last.noise),
    )


@dataclass(frozen=True)
class _FitData:
    """Of recordings: those that laws are fitted to, those that are held out, and the noise of their signals."""

    train: Segments
    held_out: Segments
    noise: np.ndarray
    threads: int

    def fit(self, robot: Robot, belief: Belief, names: tuple[str, ...], start: np.ndarray) -> Fit:
        return fit(robot, self.train, belief, self.noise, names, start, threads=self.threads)

    def find_minimum(self, robot: Robot, belief: Belief, names: tuple[str, ...], start: np.ndarray) -> np.ndarray:
        return find_minimum(robot, self.train, belief, self.noise, names, start, rounds=2, threads=self.threads).e

    def evaluate(self, name: str, values: dict[str, float], robot: Robot, e: np.ndarray) -> Candidate:
        return evaluate(name, values, robot, (self.train, self.held_out), self.noise, e, self.threads)


LawFits = dict[str, tuple[tuple[Param, ...], np.ndarray]]
"""By law: its figures as parameters beside the robot's own, and the values of all, (all,)."""


def _fit_laws(
    robot: Robot,
    fit_data: _FitData,
    belief: Belief,
    motor_names: tuple[str, ...],
    labels: tuple[str, ...],
    law_terms: Sequence[MotorLawTerm],
    report: Report,
) -> tuple[list[Candidate], LawFits]:
    """The laws of a ladder, each fitted beside the motors' `own` figures, up to one that leaves nothing but noise."""
    tried: list[Candidate] = []
    found: LawFits = {"": ((), belief.median())}
    for i, rung in enumerate((None, *law_terms)):
        report(i / (len(law_terms) + 2))
        new = law_parameters(robot, labels, rung) if rung else ()
        if rung and not new:
            continue
        extra, e = [at for name, at in found.items() if not rung or name not in rung.excludes][-1]
        extra = (*extra, *new)
        larger, wide = extend_space(robot, belief, extra)
        names = (*motor_names, *(p.name for p in extra))
        # From the law below on: the middle of what a motor could lose is far from any motor.
        e = np.concatenate([e, [p.nominal for p in new]])
        if any(p.name == SPRING_PARAMETER for p in new):
            e = _scan_parameter(larger, fit_data, e, larger.space.index(SPRING_PARAMETER))
        e = fit_data.find_minimum(larger, wide, names, e) if names else e
        name = rung.name if rung else AS_BELIEVED
        found[name] = (extra, e)
        tried.append(fit_data.evaluate(name, {n: float(e[larger.space.index(n)]) for n in names}, larger, e))
        if tried[-1].leaves_only_noise:
            break
    return tried, found


def _fit_jointly(
    robot: Robot, fit_data: _FitData, belief: Belief, names: tuple[str, ...], starts: tuple[np.ndarray, ...]
) -> Fit:
    """All numbers beside a law's figures: masses and the like were found without it, and bent to make up for it.

    From several starts, (all,), since what was bent may be in another valley. They are compared with one noise for
    all: what a worse fit leaves is no reason to ask less of it.
    """
    ends = [fit_data.find_minimum(robot, belief, names, start) for start in starts]
    errors = [relative_errors(robot, fit_data.train, fit_data.noise, e, fit_data.threads).mean() for e in ends]
    return fit_data.fit(robot, belief, names, ends[int(np.argmin(errors))])


def _scan_parameter(robot: Robot, fit_data: _FitData, e: np.ndarray, index: int) -> np.ndarray:
    """e with that value of parameter i, of some over its range, that does best: every resonance makes a valley of its own."""
    param = robot.space.params[index]
    tries = np.repeat(e[None], SPRING_VALUES_SCANNED, axis=0)
    tries[:, index] = np.geomspace(param.low, param.high, SPRING_VALUES_SCANNED)
    return best_world(robot, fit_data.train, fit_data.noise, tries, e, fit_data.threads)
