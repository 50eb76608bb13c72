"""The link `sim`: a virtual robot inside this process, in lock-step with its controller.

sim                      the robot as designed
sim:FILE                 with the reality of a file
sim:hidden:SEED[:FAMILY] with a reality drawn from the seed
"""

from __future__ import annotations

from collections.abc import Callable

from isthmus.core.errors import BadInput
from isthmus.data.contract import Contract
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.robots import get_robot
from isthmus.sim.reality import Reality, VirtualRobot
from isthmus.sim.reality.hidden import parse_reality


def open_link(
    address: str, *, speed: float, contract: Contract | None, adjust: Callable[[Reality], Reality] = lambda reality: reality
) -> InProcessLink:
    """A virtual robot of the contract's type. Its clock is its own: `speed` has no effect.

    `adjust` changes its reality before it is built, for example to the conditions of one trial.
    """
    if contract is None:
        raise BadInput("the link sim needs to know which robot to simulate: give a controller or a contract.")
    reality = parse_reality(address, get_robot(contract.robot))
    return InProcessLink(VirtualRobot(get_robot(reality.robot), adjust(reality)))
