"""What describes a robot and its dynamics: a name or model file, a Robot, a Belief, a Twin, or the file of one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.robots.twin import Twin
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

    RobotSource = str | Path | Robot | Twin
    """Name as in `isthmus list`, model, config or twin file, or the object itself."""
    DynamicsSource = str | Path | Belief | Twin
    """Belief or twin, or the file of one."""


def resolve_dynamics(source: DynamicsSource | None, robot: Robot, default: Belief | None = None) -> tuple[Robot, Belief]:
    """The robot and its parameter distribution. A twin also brings its motors, ground and learned forces.

    Without a source, the distribution is `default` or, if there is none, the robot's prior.
    """
    from isthmus.robots.twin import Twin, is_twin
    from isthmus.world import Belief, belief_on_space

    if source is None:
        return robot, robot.prior if default is None else default
    where = str(source) if isinstance(source, str | Path) else "what was given"
    if isinstance(source, str | Path):
        source = Twin.load(Path(source)) if is_twin(Path(source)) else Belief.load(Path(source))
    if isinstance(source, Twin):
        unit = source.apply_to(robot, where)
        return unit, unit.prior
    return robot, belief_on_space(source, robot.space, where)


def resolve_robot(source: RobotSource) -> tuple[Robot, Twin | None]:
    """The robot, and the twin if it is one; a twin's robot has its parameters, motors, ground and learned forces."""
    from isthmus.robots import ROBOT_NAME_HELP, get_robot
    from isthmus.robots.twin import Twin, is_twin
    from isthmus.sim.robot import Robot

    if isinstance(source, Robot):
        return source, None
    if isinstance(source, str | Path) and not is_twin(Path(source)):
        try:
            return get_robot(str(source)), None
        except BadInput as error:
            # Where a robot is asked for, a twin will do, too.
            raise BadInput(str(error).replace(ROBOT_NAME_HELP, f"{ROBOT_NAME_HELP}, or a twin (.twin)")) from None
    twin = source if isinstance(source, Twin) else Twin.load(Path(source))
    return twin.apply_to(get_robot(twin.robot), "the twin" if isinstance(source, Twin) else str(source)), twin


def load_twin(source: Twin | Path | str) -> Twin:
    """A twin, or that of a file; anything else is an error that says how to make one."""
    from isthmus.robots.twin import Twin, is_twin

    if isinstance(source, Twin):
        return source
    if not is_twin(Path(source)):
        raise BadInput(f"{source} is not a twin (.twin); make one with `isthmus identify ROBOT RECORDINGS -o NAME.twin`.")
    return Twin.load(Path(source))


def source_name(source: RobotSource) -> str:
    """Name or path by which a twin remembers its robot."""
    from isthmus.robots.twin import Twin
    from isthmus.sim.robot import Robot

    return source.name if isinstance(source, Robot) else source.robot if isinstance(source, Twin) else str(source)
