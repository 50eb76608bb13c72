"""The motor law in C is the motor law in NumPy, for every drive, every kind of motor and every robot."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from isthmus.core.errors import BadInput
from isthmus.sim.engines.batch import control_callback
from isthmus.sim.engines.batch.engine import BatchEngines
from isthmus.sim.simulation import Simulation
from isthmus.world import Space

VARIANTS = {
    "ideal": {"speed_limit": (), "coulomb": (), "viscous": ()},
    "go1": {},
    "lag": {"lag": (0.004, 0.0, 0.05) * 4},
    "spring": {"spring": (300.0, 900.0, 500.0) * 4, "rotor_inertia": (0.01, 0.02, 0.015) * 4},
    "spring and lag": {"spring": (400.0,) * 12, "rotor_inertia": (0.01,) * 12, "lag": (0.01,) * 12, "speed_limit": ()},
    "stribeck": {"stribeck": (0.5, 0.2, 0.0) * 4, "stribeck_speed": (0.1,) * 12, "load_friction": (0.1,) * 12},
    "backlash": {"backlash": (0.02, 0.0, 0.005) * 4, "stribeck": (0.2,) * 12},
    "flex": {"spring": (30.0, 20.0, 25.0) * 4, "lag": (0.01,) * 12},
    "backlash behind the encoder": {"backlash": (0.02, 0.0, 0.005) * 4, "lag": (0.01,) * 12, "encoder": "link"},
    "weak": {"torque_limit": (3.0,) * 12, "speed_limit": (4.0,) * 12, "coulomb": (0.5,) * 12, "viscous": (0.1,) * 12},
}


@pytest.mark.skipif(control_callback.install_control_callback() is None, reason="no C compiler")
@pytest.mark.parametrize("drive", ["position", "effort", "native"])
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_the_motor_law_in_c_equals_numpy(variant, drive):
    from isthmus.robots.go1 import go1

    base = go1()
    free = tuple(p for p in base.space.params if not any(t.startswith("motor:") for t in p.targets))
    space = Space(free) if variant == "ideal" else base.space
    target = base.contract.target if drive == "position" else dataclasses.replace(base.contract.target, low=(), high=())
    robot = dataclasses.replace(
        base,
        motors=dataclasses.replace(base.motors, drive=drive, **VARIANTS[variant]),
        space=space,
        contract=dataclasses.replace(base.contract, target=target),
        default=base.default if drive == "position" else (0.0,) * 12,
    )
    if variant.startswith(("backlash", "spring", "flex")) and drive == "native":
        with pytest.raises(BadInput, match="backlash and springs"):
            Simulation(robot, 3)
        return
    fast, slow = Simulation(robot, 3), Simulation(robot, 3, engine=BatchEngines(native_motor_law=False))
    assert fast.runs_motor_law
    assert not slow.runs_motor_law
    rng = np.random.default_rng(0)
    e = space.vector({}) + 0.1 * (space.low - space.nominal) * rng.uniform(size=(3, len(space)))
    for x in (fast, slow):
        x.apply(e, x.all_ids)
        x.reset(x.all_ids)
    for _ in range(12):
        u = np.array(robot.default) + (0.5 if drive == "position" else 8.0) * rng.uniform(-1, 1, (3, 12))
        for x in (fast, slow):
            x.step(u)
        for name in ("qpos", "qvel", "ctrl"):
            assert np.allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-10), name
        same = [x.signals(np.random.default_rng(1)) for x in (fast, slow)]
        assert np.allclose(*same, rtol=1e-6, atol=1e-6)
    for name in ("lagged", "rotor", "rotor_speed", "touch"):
        assert np.allclose(fast.userdata[f"state.{name}"], slow.userdata[f"state.{name}"], rtol=1e-9, atol=1e-9)


def test_the_motor_law_in_c_equals_numpy_for_every_robot(robot, targets):
    fast, slow = Simulation(robot, 4), Simulation(robot, 4, engine=BatchEngines(native_motor_law=False))
    e = robot.prior.sample(np.random.default_rng(0), 4)
    for x in (fast, slow):
        x.apply(e, x.all_ids)
        x.reset(x.all_ids)
    rng = np.random.default_rng(1)
    for _ in range(15):
        u = targets(robot, rng, 4, size=0.3)
        for x in (fast, slow):
            x.step(u)
        assert np.allclose(fast.qpos, slow.qpos, rtol=1e-9, atol=1e-10)
        assert np.allclose(fast.qvel, slow.qvel, rtol=1e-8, atol=1e-9)
