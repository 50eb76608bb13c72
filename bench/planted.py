"""Robots with known numbers and noisy recordings of them: problems that every tool of identification can be given.

The motors are MuJoCo's own (drive "native") and every parameter is a field of the model, so that a tool which knows nothing
but MJCF can be asked the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import mujoco
import numpy as np

from isthmus.data.contract import Contract, Signal
from isthmus.data.episode import Episode
from isthmus.real2sim.prepare.segments import Segments, cut
from isthmus.real2sim.prepare.tracks import to_tracks
from isthmus.robots import get_robot
from isthmus.robots.go1 import JOINT_RANGE, JOINTS, KP, LEG_JOINTS, STANCE
from isthmus.robots.parameters import factor, offset, space_and_prior, vary
from isthmus.sim.morphology import Morphology, Root
from isthmus.sim.robot import MotorParams, Robot
from isthmus.sim.simulation import Simulation

SECONDS, AHEAD = 10.0, 0.5
"""s of recording, and of each segment."""
POSITION_NOISE, VELOCITY_NOISE = 0.002, 0.05
"""rad and rad/s."""


@dataclass(frozen=True)
class Problem:
    name: str
    robot: Robot
    truth: np.ndarray
    """(d,) in the units of the robot's Space, all of which is to be found."""
    start: np.ndarray
    """(d,) where the search begins."""
    guessed: Segments
    """With starts as the recording shows them."""
    known: Segments
    """The same with the true states at their starts."""
    noise: np.ndarray
    """(components,) σ of each signal."""

    @property
    def steps(self) -> int:
        """Physics steps of one replay of all segments."""
        return len(self.known) * self.known.ticks * self.robot.substeps


@dataclass
class Work:
    """What a fit did, and when."""

    replays: int = 0
    """Of all segments in one world."""
    compiling: float = 0.0
    """s that went into models."""
    stepping: float = 0.0
    """s in calls of MuJoCo that step."""
    trace: list[tuple[float, float, float]] = field(default_factory=list)
    """(s, s of the processor, cost) at each point that was tried, from the start on."""
    total: tuple[float, float] = (0.0, 0.0)
    """The same two of the whole fit."""

    def __post_init__(self) -> None:
        self._policy_start = time.perf_counter(), time.process_time()

    def _now(self) -> tuple[float, float]:
        return time.perf_counter() - self._policy_start[0], time.process_time() - self._policy_start[1]

    def note(self, cost: float) -> None:
        self.trace.append((*self._now(), cost))

    def stop(self) -> None:
        self.total = self._now()

    def timed(self, call: Callable) -> Callable:
        def inner(*args, **named):
            began = time.perf_counter()
            out = call(*args, **named)
            self.stepping += time.perf_counter() - began
            return out

        return inner

    def reached(self, cost: float) -> tuple[float, float]:
        """When a point at most as costly was first tried; infinite if never."""
        return next((when[:2] for when in self.trace if when[2] <= cost), (np.inf, np.inf))


def pendulum(seed: int = 0) -> Problem:
    """Mass and its height, viscous and dry friction of a pendulum: 4 numbers."""
    robot = get_robot("pendulum")
    spec = robot.spec()
    spec.option.disableflags = 0
    space = (
        factor("weight_mass", "body:weight/mass", (0.5, 2.0), (0.5, 2.0)),
        offset("com_z", "m", "body:weight/com[2]", 0.1, 0.1),
        vary("damping", "N·m·s/rad", "joint:hinge/damping", 0.1, (0.0, 0.5), (0.0, 0.5)),
        vary("friction", "N·m", "joint:hinge/frictionloss", 0.1, (0.0, 0.5), (0.0, 0.5)),
    )
    truth, start = np.array([1.17, 0.018, 0.062, 0.07]), np.array([1.0, -0.01, 0.1, 0.1])
    return _problem("pendulum", _native(robot, spec, space), truth, start, 0.8, seed)


def legs(seed: int = 0) -> Problem:
    """A go1 whose trunk is held in the air, its legs on position servos: 10 numbers of its links and joints."""
    robot = get_robot("go1")
    spec = robot.spec()
    spec.option.solver, spec.option.iterations = mujoco.mjtSolver.mjSOL_NEWTON, 100
    spec.delete(spec.joint("root"))
    spec.body("trunk").pos[2] = 1.0
    for sensor in spec.sensors:
        spec.delete(sensor)
    for actuator in spec.actuators:
        actuator.set_to_position(kp=KP)
    low, high = (tuple(JOINT_RANGE[j.split("_")[1]][end] for j in JOINTS) for end in (0, 1))
    contract = Contract(
        robot="legs",
        rate=robot.contract.rate,
        signals=(Signal("joint_pos", "rad", JOINTS), Signal("joint_vel", "rad/s", JOINTS)),
        target=Signal("joint_target", "rad", JOINTS, low=low, high=high),
    )
    stance = tuple(STANCE[j.split("_")[1]] for j in JOINTS)
    held = replace(
        robot,
        name="legs",
        contract=contract,
        sources={"joint_pos": "qpos", "joint_vel": "qvel"},
        home=stance,
        default=stance,
        morphology=Morphology((Root("trunk"),)),
    )
    space = (
        *(factor(f"{p}_mass", f"body:.*_{p}/mass", (0.5, 2.0), (0.5, 2.0)) for p in LEG_JOINTS),
        *(vary(f"{p}_damping", "N·m·s/rad", f"joint:.*_{p}/damping", 0.5, (0.0, 2.0), (0.0, 2.0)) for p in LEG_JOINTS),
        *(vary(f"{p}_armature", "kg·m²", f"joint:.*_{p}/armature", 0.01, (0.002, 0.05), (0.002, 0.05)) for p in LEG_JOINTS),
        vary("friction", "N·m", "joint:.*/frictionloss", 0.2, (0.0, 1.0), (0.0, 1.0)),
    )
    truth = np.array([0.9, 1.12, 1.2, 0.41, 0.55, 0.62, 0.008, 0.011, 0.0145, 0.27])
    robot = _native(held, spec, space)
    return _problem("legs", robot, truth, robot.space.nominal, 0.25, seed)


def _native(robot: Robot, spec: mujoco.MjSpec, ranges) -> Robot:
    space, prior = space_and_prior(ranges)
    spec.compile()
    return replace(
        robot,
        xml=spec.to_xml(),
        motors=MotorParams("native"),
        space=space,
        prior=prior,
        morphology=replace(robot.morphology, mirror=None),
    )


def _problem(name: str, robot: Robot, truth: np.ndarray, start: np.ndarray, size: float, seed: int) -> Problem:
    """Record the true robot under targets that wander by `size`, in the targets' unit, and cut the recording up."""
    rng, rate = np.random.default_rng(seed), robot.contract.rate
    targets = np.array(robot.default) + size * _waves(rng, round(SECONDS * rate), robot.contract.target.size, rate)
    engine = Simulation(robot, 1, threads=1)
    engine.apply(truth[None], engine.all_ids)
    engine.reset(engine.all_ids)
    qpos, qvel, y = [], [], []
    for u in targets:
        qpos.append(engine.qpos[0].copy())
        qvel.append(engine.qvel[0].copy())
        y.append(engine.noiseless_signals()[0])
        engine.replay(u[None])
    sizes = zip(robot.contract.signals, (POSITION_NOISE, VELOCITY_NOISE), strict=True)
    noise = np.concatenate([np.full(signal.size, sigma) for signal, sigma in sizes])
    measured = np.array(y) + noise * rng.standard_normal((len(y), len(noise)))
    signals = {signal: measured[:, where] for signal, where in robot.contract.slices().items()}
    episode = Episode(robot.contract, np.arange(len(y)) / rate, signals, targets, targets)
    guessed = cut(to_tracks([episode], robot.contract, 1.0 / rate), robot, round(AHEAD * rate))
    at = np.rint(guessed.start * rate).astype(int)
    known = replace(guessed, qpos=np.array(qpos)[at], qvel=np.array(qvel)[at])
    return Problem(name, robot, truth, start, guessed, known, noise)


def _waves(rng: np.random.Generator, ticks: int, motors: int, rate: float) -> np.ndarray:
    """Sums of three sines of 0.3 to 3 Hz for each motor, (ticks, motors), between -1 and 1."""
    t = np.arange(ticks)[:, None] / rate
    sines = [np.sin(2 * np.pi * rng.uniform(0.3, 3.0, motors) * t + rng.uniform(0, 6, motors)) for _ in range(3)]
    return np.mean(sines, axis=0)
