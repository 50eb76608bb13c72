"""A robot that differs from its model, through the same link as hardware: the same law on both, recorded and compared.

python examples/04_virtual_robot.py
"""

import numpy as np

from isthmus.data.mcap.writer import EpisodeWriter, read_episode
from isthmus.deploy.links.in_process import InProcessLink
from isthmus.deploy.links.link import Command
from isthmus.robots import get_robot
from isthmus.robots.pendulum import GRAVITY_TORQUE, INERTIA
from isthmus.sim.reality import Reality, VirtualRobot

robot = get_robot("pendulum")
rubs = {"stribeck": {"static": 1.0, "coulomb": 0.8, "velocity": 0.1}}
tick = 1.0 / robot.contract.rate

for name, unmodelled in (("as its model", {}), ("with stiction", rubs)):
    link = InProcessLink(VirtualRobot(robot, Reality.from_dict({"robot": "pendulum", "seed": 1, "unmodelled": unmodelled})))
    with EpisodeWriter(f"{name}.mcap", robot.contract, origin={"source": "virtual"}) as recording:
        for k in range(400):
            link.clock.sleep_until(k * tick)
            packets = link.read()
            q, qd = packets[-1].values if packets else (0.0, 0.0)
            # Pump energy until it is that of the pendulum at rest on top.
            energy = 0.5 * INERTIA * qd**2 - GRAVITY_TORQUE * (np.cos(q) + 1.0)
            torque = np.clip([-10.0 * energy * (np.sign(qd) or 1.0)], -1.5, 1.5)
            link.write(Command(k, k * tick, "track", torque))
            recording.write_rows(np.concatenate([[k * tick, q, qd], torque, torque])[None])
    episode = read_episode(f"{name}.mcap")
    angle = np.degrees(np.abs(episode.signals["joint_pos"]).max())
    print(f"{name:13} swings up to {angle:3.0f} degrees in {episode.duration:.0f} s; recording {episode.hash[:8]}")
