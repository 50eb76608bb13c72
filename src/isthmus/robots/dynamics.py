"""The worlds that an option names: a file with a belief, or a twin."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.robots.twin import Twin
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief


def resolve_dynamics(path: Path | None, robot: Robot, default: Belief | None = None) -> tuple[Robot, Belief]:
    """The robot and what is believed of it: a twin brings its own motors, ground and forces, a belief only numbers."""
    from isthmus.robots.twin import Twin, is_twin
    from isthmus.world import Belief, belief_on_space

    if path is None:
        return robot, robot.prior if default is None else default
    if is_twin(path):
        unit = Twin.load(path).apply_to(robot, str(path))
        return unit, unit.prior
    return robot, belief_on_space(Belief.load(path), robot.space, str(path))


def resolve_robot(name: str) -> tuple[Robot, Twin | None]:
    """The robot that a name, a model file or a twin stands for, and the twin."""
    from isthmus.robots import ROBOT_NAME_HELP, get_robot
    from isthmus.robots.twin import Twin, is_twin

    if not is_twin(Path(name)):
        try:
            return get_robot(name), None
        except BadInput as error:
            # Where a robot is asked for, a twin will do, too.
            raise BadInput(str(error).replace(ROBOT_NAME_HELP, f"{ROBOT_NAME_HELP}, or a twin (.twin)")) from None
    twin = Twin.load(Path(name))
    return twin.apply_to(get_robot(twin.robot), name), twin
