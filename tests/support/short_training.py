"""Training that takes no time, and a law for the pendulum: as it is, and as a file says it."""

from __future__ import annotations

from isthmus.data.contract import Law
from isthmus.learn.ppo import PPO

SMALL = PPO(worlds=8, ticks=8, minibatch=32, hidden=(16,), critic_hidden=(16,))
PENDULUM = Law((0.1,), {"joint_vel": ((-0.4,),), "joint_pos:angle": ((3.0, 0.5),)})
FILE = 'robot = "pendulum"\nconstant = [0.1]\n[gains]\njoint_vel = [[-0.4]]\n"joint_pos:angle" = [[3.0, 0.5]]\n'


def work(iterations: int):
    def go(trainer) -> None:
        trainer.save()
        for _ in range(iterations):
            trainer.iterate()
        trainer.save()

    return go
