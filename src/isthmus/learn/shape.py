"""What an actor for a task sees and does: signals in, targets out, and what lies in between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from isthmus.data.contract import Contract, Law, Signal
from isthmus.errors import BadInput, unknown
from isthmus.learn.context import Context
from isthmus.learn.law import check_law, observed
from isthmus.learn.mirror import Part
from isthmus.learn.prepare import prepared_labels
from isthmus.sim.robot import Mirror
from isthmus.tasks.task import Policy, Task, privileged_signals


@dataclass(frozen=True)
class Shape:
    """Everything that fixes an actor's inputs and outputs."""

    signals: tuple[Signal, ...]
    """Inputs: signals of the robot and the task's command."""
    target: Signal
    default: tuple[float, ...]
    policy: Policy
    rate: float
    """Control ticks per second: the clock of a gait advances by it."""
    hidden: tuple[int, ...] = (128, 128)
    mirror: Mirror | None = None
    """Makes left and right exactly alike, where the robot is."""
    context: Context = field(default_factory=Context)
    told: tuple[Signal, ...] = ()
    """What the simulator tells a teacher, beside the signals."""
    base: Law | Shape | None = None
    """What the actor corrects: a law, or another actor."""
    share: float = 1.0
    """Part of the policy's reach that the correction of a base may use."""

    @staticmethod
    def of(
        task: Task,
        hidden: tuple[int, ...] = (128, 128),
        mirrored: bool = True,
        context: Context | None = None,
        base: Law | Shape | None = None,
        share: float = 1.0,
    ) -> Shape:
        """The shape of an actor for a task; observing what the robot cannot sense is an error.

        A base moves in its own way: the task's gait and reflexes are left out on top of one.
        """
        context = context or Context()
        check_history(task, context)
        contract = task.robot.contract
        offered = sensed(contract, task)
        policy = task.policy if base is None else replace(task.policy, gait=None, reflexes=())
        wanted = [*policy.observe, *(r.observe for r in policy.reflexes)]
        names = [name for o in wanted for name in (o.signal, o.minus) if name]
        gate = [policy.gait.gate] if policy.gait else []
        below = _needs(base, task, offered) if base is not None else []
        chosen = tuple(dict.fromkeys(_pick(name, offered, task) for name in (*names, *gate, *below)))
        return Shape(
            chosen,
            contract.target,
            task.robot.default,
            policy,
            contract.rate,
            hidden,
            mirror=task.robot.mirror if mirrored else None,
            context=context,
            told=privileged_signals(task) if context.source == "privileged" else (),
            base=base,
            share=share,
        )

    @property
    def depth(self) -> int:
        """Frames that are remembered."""
        return max(self.policy.history, self.context.frames(self.rate))

    @property
    def longest(self) -> int:
        """Frames that are remembered anywhere, also by what is corrected."""
        return max(self.depth, self.base.longest) if isinstance(self.base, Shape) else self.depth

    def parts(self) -> list[Part]:
        """Labels of one frame of the observation, part by part."""
        by_name = {s.name: s for s in self.signals}
        found = [prepared_labels(o, by_name[o.signal]) for o in self.policy.observe]
        clock: list[Part] = [(["sin", "cos"], "phase")] if self.policy.gait else []
        below: list[Part] = [(list(self.target.labels), "target")] if self.base is not None else []
        return [*found, *clock, *below, self.action()]

    def action(self) -> Part:
        """Labels of the action."""
        return (list(self.policy.actions), "action") if self.policy.mix else (list(self.target.labels), "target")


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


def sensed(contract: Contract, task: Task) -> dict[str, Signal]:
    """Signals that reach the policy on the robot: its sensors' and the operator's command."""
    named = {s.name: s for s in contract.signals}
    return named | ({task.command.signal.name: task.command.signal} if task.command else {})


def _pick(name: str, offered: dict[str, Signal], task: Task) -> Signal:
    if name not in offered:
        raise unknown("signal", name, offered, f"the observation of {task.name}: {task.robot.name} cannot sense it")
    return offered[name]


def _needs(base: Law | Shape, task: Task, offered: Mapping[str, Signal]) -> list[str]:
    """Names of the signals that a base needs; one that does not fit the task's robot is a BadInput."""
    robot = task.robot
    if isinstance(base, Law):
        check_law(base, offered, robot.contract.target, f"the law under {task.name}")
        return [o.signal for o in observed(base).values()]
    if base.told:
        raise BadInput("a base must be able to run on the robot, and a teacher is not: it is told e.")
    if (base.target, base.default, base.rate) != (robot.contract.target, robot.default, robot.contract.rate):
        raise BadInput(f"the base has other targets, another default or another rate than {robot.name}.")
    for signal in base.signals:
        if signal.name not in offered:
            raise unknown("signal", signal.name, offered, f"the base's observation: {task.name} does not give it")
        here = offered[signal.name]
        if (here.labels, here.unit, here.frame) != (signal.labels, signal.unit, signal.frame):
            raise BadInput(f"the base's signal {signal.name!r} is another one in {task.name}: labels, unit or frame differ.")
    return [signal.name for signal in base.signals]
