"""A robot of your own: an MJCF file and nothing else, in 64 different worlds.

python examples/03_any_model.py
"""

import tempfile
from pathlib import Path

import numpy as np

from isthmus.robots import get_robot
from isthmus.sim.simulation import Simulation

ARM = """
<mujoco model="arm">
  <worldbody>
    <body name="upper">
      <joint name="shoulder" axis="0 1 0" range="-2 2" damping="0.1"/>
      <geom type="capsule" size="0.03" fromto="0 0 0 0.3 0 0" mass="0.8"/>
      <body name="lower" pos="0.3 0 0">
        <joint name="elbow" axis="0 1 0" range="-2 2" damping="0.1"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0.25 0 0" mass="0.4"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <position name="shoulder" joint="shoulder" kp="40" kv="2" ctrlrange="-2 2"/>
    <position name="elbow" joint="elbow" kp="20" kv="1" ctrlrange="-2 2"/>
  </actuator>
</mujoco>
"""

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "arm.xml"
    path.write_text(ARM)
    robot = get_robot(str(path))
print(f"{robot.name}: signals {[s.name for s in robot.contract.signals]}, {len(robot.space)} parameters")

engine = Simulation(robot, n=64)
engine.apply(robot.prior.sample(np.random.default_rng(0), 64), engine.all_ids)
engine.reset(engine.all_ids)
for _ in range(8):
    engine.step(np.tile([0.5, -0.5], (64, 1)))
spread = np.degrees(engine.qpos.std(axis=0))
print(f"on the way there the joints differ between worlds by {spread[0]:.1f}° and {spread[1]:.1f}° (standard deviation)")
