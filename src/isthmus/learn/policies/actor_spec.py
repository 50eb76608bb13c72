"""What an actor for a task sees and does: signals in, targets out, and what lies in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isthmus.core.errors import BadInput, unknown_name
from isthmus.data.contract import AffineFeedback, Contract, Signal
from isthmus.learn.policies.context import Context
from isthmus.learn.policies.linear_controller import check_law, observation_terms
from isthmus.learn.policies.observation_terms import observation_term_labels
from isthmus.learn.policies.symmetry import VectorLabels
from isthmus.sim.morphology import Mirror
from isthmus.tasks.task import PolicySpec, Task, privileged_signals


@dataclass(frozen=True)
class ActorSpec:
    """Everything that fixes an actor's inputs and outputs."""

    signals: tuple[Signal, ...]
    """Inputs: signals of the robot and the task's command."""
    target: Signal
    default: tuple[float, ...]
    policy: PolicySpec
    rate: float
    """Control ticks per second: the clock of a gait advances by it."""
    hidden: tuple[int, ...] = (128, 128)
    mirror: Mirror | None = None
    """Makes left and right exactly alike, where the robot is."""
    context: Context = field(default_factory=Context)
    privileged: tuple[Signal, ...] = ()
    """What the simulator tells a teacher, beside the signals."""
    base: AffineFeedback | ActorSpec | None = None
    """What the actor corrects: a law, or another actor."""
    residual_scale: float = 1.0
    """Part of the policy's reach that the correction of a base may use."""

    @staticmethod
    def for_task(
        task: Task,
        hidden: tuple[int, ...] = (128, 128),
        symmetric: bool = True,
        context: Context | None = None,
        base: AffineFeedback | ActorSpec | None = None,
        residual_scale: float = 1.0,
    ) -> ActorSpec:
        """The shape of an actor for a task; observing what the robot cannot sense is an error.

        A base moves in its own way: the task's gait and reflexes are left out on top of one.
        """
        context = context or Context()
        check_history(task, context)
        contract = task.robot.contract
        offered = available_signals(contract, task)
        policy = task.policy if base is None else replace(task.policy, gait_clock=None, feedback=())
        wanted = [*policy.observations, *(r.observation for r in policy.feedback)]
        names = [name for o in wanted for name in (o.signal, o.subtract) if name]
        gate = [policy.gait_clock.gate] if policy.gait_clock else []
        below = _base_signals(base, task, offered) if base is not None else []
        chosen = tuple(dict.fromkeys(_find_signal(name, offered, task) for name in (*names, *gate, *below)))
        return ActorSpec(
            chosen,
            contract.target,
            task.robot.default,
            policy,
            contract.rate,
            hidden,
            mirror=task.robot.morphology.mirror if symmetric else None,
            context=context,
            privileged=privileged_signals(task) if context.source == "privileged" else (),
            base=base,
            residual_scale=residual_scale,
        )

    @property
    def memory_frames(self) -> int:
        """Frames that are remembered."""
        return max(self.policy.history, self.context.window_frames(self.rate))

    @property
    def max_memory_frames(self) -> int:
        """Frames that are remembered anywhere, also by what is corrected."""
        return max(self.memory_frames, self.base.max_memory_frames) if isinstance(self.base, ActorSpec) else self.memory_frames

    def observation_labels(self) -> list[VectorLabels]:
        """Labels of one frame of the observation, part by part."""
        by_name = {s.name: s for s in self.signals}
        found = [observation_term_labels(o, by_name[o.signal]) for o in self.policy.observations]
        clock: list[VectorLabels] = [(["sin", "cos"], "phase")] if self.policy.gait_clock else []
        below: list[VectorLabels] = [(list(self.target.labels), "target")] if self.base is not None else []
        return [*found, *clock, *below, self.action_labels()]

    def action_labels(self) -> VectorLabels:
        """Labels of the action."""
        return (list(self.policy.action_names), "action") if self.policy.mixer else (list(self.target.labels), "target")


def check_history(task: Task, context: Context) -> None:
    """A window of the past must fit into what a link delivers between the start of an episode and its end."""
    rate = task.robot.contract.rate
    if context.source != "convolution":
        return
    if context.history > task.episode:
        raise BadInput(
            f"a history of {context.history:g} s is longer than the link can give: an episode of {task.name} lasts "
            f"{task.episode:g} s."
        )
    if context.history * rate < 2:
        raise BadInput(f"a history of {context.history:g} s is less than two ticks of {task.robot.name}, {2 / rate:g} s.")


def available_signals(contract: Contract, task: Task) -> dict[str, Signal]:
    """Signals that reach the policy on the robot: its sensors' and the operator's command."""
    named = {s.name: s for s in contract.signals}
    return named | ({task.command.signal.name: task.command.signal} if task.command else {})


def _find_signal(name: str, available: dict[str, Signal], task: Task) -> Signal:
    if name not in available:
        raise unknown_name("signal", name, available, f"the observation of {task.name}: {task.robot.name} cannot sense it")
    return available[name]


def _base_signals(base: AffineFeedback | ActorSpec, task: Task, available: Mapping[str, Signal]) -> list[str]:
    """Names of the signals that a base needs; one that does not fit the task's robot is a BadInput."""
    robot = task.robot
    if isinstance(base, AffineFeedback):
        check_law(base, available, robot.contract.target, f"the law under {task.name}")
        return [o.signal for o in observation_terms(base).values()]
    if base.privileged:
        raise BadInput("a base must be able to run on the robot, and a teacher is not: it is told e.")
    if (base.target, base.default, base.rate) != (robot.contract.target, robot.default, robot.contract.rate):
        raise BadInput(f"the base has other targets, another default or another rate than {robot.name}.")
    for signal in base.signals:
        if signal.name not in available:
            raise unknown_name("signal", signal.name, available, f"the base's observation: {task.name} does not give it")
        here = available[signal.name]
        if (here.labels, here.unit, here.frame) != (signal.labels, signal.unit, signal.frame):
            raise BadInput(f"the base's signal {signal.name!r} is another one in {task.name}: labels, unit or frame differ.")
    return [signal.name for signal in base.signals]
