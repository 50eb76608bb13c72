"""Training that takes no time, and a law for the pendulum: as it is, and as a file says it."""

from __future__ import annotations

from isthmus.data.contract import AffineFeedback
from isthmus.learn.algorithms.ppo import PPOConfig

SMALL = PPOConfig(worlds=8, rollout_ticks=8, minibatch_size=32, hidden=(16,), critic_hidden=(16,))
PENDULUM = AffineFeedback((0.1,), {"joint_vel": ((-0.4,),), "joint_pos:angle": ((3.0, 0.5),)})
FILE = 'robot = "pendulum"\nconstant = [0.1]\n[gains]\njoint_vel = [[-0.4]]\n"joint_pos:angle" = [[3.0, 0.5]]\n'


def work(iterations: int):
    def go(trainer) -> None:
        trainer.save()
        for _ in range(iterations):
            trainer.iterate()
        trainer.save()

    return go
