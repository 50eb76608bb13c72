"""What describes the dynamics that a verb works with: a belief or a twin, loaded or as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from isthmus.core.errors import BadInput

if TYPE_CHECKING:
    from isthmus.robots.twin import Twin
    from isthmus.sim.robot import Robot
    from isthmus.world import Belief

Source: TypeAlias = "Belief | Twin | Path | str"
"""A belief or a twin: as an object, or as the file that holds it."""


def resolve_dynamics(source: Source | None, robot: Robot, default: Belief | None = None) -> tuple[Robot, Belief]:
    """The robot and the belief over its parameters: a twin brings its own motors, ground and forces, a belief only numbers."""
    from isthmus.robots.twin import Twin, is_twin
    from isthmus.world import Belief, belief_on_space

    if source is None:
        return robot, robot.prior if default is None else default
    if isinstance(source, Belief):
        return robot, belief_on_space(source, robot.space, "the belief")
    if isinstance(source, Twin):
        unit = source.apply_to(robot, "the twin")
        return unit, unit.prior
    path = Path(source)
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
