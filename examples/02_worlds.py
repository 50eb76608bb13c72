"""e as a value: sample it, apply it, and see what it does to the same push on the same robot.

python examples/02_worlds.py
"""

import numpy as np

from isthmus.robots import get_robot
from isthmus.sim.simulation import Simulation

robot = get_robot("go1")
space = robot.space
print(f"{robot.name} has {len(space)} unknown numbers, among them {', '.join(space.names[:6])}")

# Three worlds that differ in one number each from the nominal one.
e = np.stack([space.nominal, space.vector({"payload": 2.0}), space.vector({"ground_friction": 0.2})])
engine = Simulation(robot, n=3)
engine.apply(e, engine.all_ids)
engine.reset(engine.all_ids)
for tick in range(100):
    engine.xfrc_applied[:, 1, 1] = 25.0 if 50 <= tick < 60 else 0.0
    engine.step(np.tile(robot.default, (3, 1)))
for name, height, shift in zip(("nominal", "payload", "slippery"), engine.qpos[:, 2], engine.qpos[:, 1], strict=True):
    print(f"{name:9} stands at {height:.3f} m and was pushed {100 * shift:+.1f} cm sideways")

# A belief is a distribution over the same space; a file of it can be given to `isthmus train --belief`.
belief = robot.prior.fix({"payload": 1.0})
print("payload 1 kg, friction between {:.2f} and {:.2f}".format(*belief.interval("ground_friction")))
