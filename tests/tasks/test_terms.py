"""Each reward term alone: its sign, its zero, a value by hand, its invariances and its direction."""

from __future__ import annotations

import dataclasses
import inspect
import math
from functools import partial

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from isthmus.core.geometry import gravity_direction, rotate_inverse
from isthmus.learn.policies.symmetry import reflection
from isthmus.robots.cartpole import cartpole
from isthmus.robots.go1 import JOINTS, LEGS, go1
from isthmus.robots.pendulum import GRAVITY_TORQUE, INERTIA
from isthmus.sim.indexing import Indexing
from isthmus.tasks import terms
from isthmus.tasks.catalogue import TASKS
from isthmus.tasks.skills import balance, hover, swing_up
from isthmus.tasks.state import State

GO1 = go1()
LOW, HIGH = torch.tensor(GO1.contract.target.low), torch.tensor(GO1.contract.target.high)
DEFAULT = torch.tensor(GO1.default)
FIELDS = [
    f.name for f in dataclasses.fields(State) if f.name not in ("default", "limits", "tick", "time", "at", "end_effector_pos")
]


def rest(n: int = 1) -> State:
    """Standing still on all feet, as commanded."""
    z = lambda *shape: torch.zeros(n, *shape)
    qpos = torch.tensor(GO1.home).float().repeat(n, 1)
    joints = DEFAULT.repeat(n, 1)
    return State(
        qpos=qpos, qvel=z(18), joint_pos=joints, joint_vel=z(12), torque=z(12), target=joints, last_target=joints,
        older_target=joints, default=DEFAULT, limits=(LOW, HIGH), command=z(3), tick=0.02, time=z(), ground=z(),
        feet_pos=z(4, 3), last_feet_pos=z(4, 3), feet_ground=z(4), feet_force=z(4) + 30, last_feet_force=z(4) + 30,
        air_time=z(4), last_joint_vel=z(12),
    )  # fmt: skip


def but(s: State | None = None, **changes) -> State:
    return dataclasses.replace(s or rest(), **{k: v if k == "tick" else torch.as_tensor(v).float() for k, v in changes.items()})


def anything(n: int = 64, seed: int = 0) -> State:
    g = torch.Generator().manual_seed(seed)
    r = lambda *shape: torch.randn(n, *shape, generator=g)
    s = rest(n)
    quat = torch.nn.functional.normalize(torch.cat([torch.ones(n, 1), 0.3 * r(3)], dim=1))
    qpos = torch.cat([r(2), 0.28 + 0.1 * r(1), quat, DEFAULT + 0.4 * r(12)], dim=1)
    random = {k: r(*getattr(s, k).shape[1:]) for k in FIELDS}
    force = {k: 60 * random[k].clamp_min(0) for k in ("feet_force", "last_feet_force")}
    random["command"][: n // 2] = 0
    random |= force | {"qpos": qpos, "joint_pos": qpos[:, 7:], "air_time": random["air_time"].abs()}
    return dataclasses.replace(s, **random)


def turned(s: State, yaw: float) -> State:
    """The same scene seen from a world turned about the vertical."""
    c, d = math.cos(yaw), math.sin(yaw)
    turn = torch.tensor([[c, -d, 0], [d, c, 0], [0, 0, 1]])
    w, x, y, z = s.quat.unbind(1)
    h, k = math.cos(yaw / 2), math.sin(yaw / 2)
    quat = torch.stack([h * w - k * z, h * x - k * y, h * y + k * x, h * z + k * w], dim=1)
    qpos = torch.cat([s.qpos[:, :3] @ turn.T, quat, s.qpos[:, 7:]], dim=1)
    qvel = torch.cat([s.qvel[:, :3] @ turn.T, s.qvel[:, 3:]], dim=1)
    return dataclasses.replace(s, qpos=qpos, qvel=qvel, feet_pos=s.feet_pos @ turn.T, last_feet_pos=s.last_feet_pos @ turn.T)


def mirrored(s: State) -> State:
    """The same scene in a mirror along the robot's middle plane."""
    assert GO1.morphology.mirror is not None
    joints = reflection([(list(JOINTS), "joint_pos")], GO1.morphology.mirror)
    joint = lambda x: x[:, joints.order] * torch.tensor(joints.signs)
    legs = list(reflection([(list(LEGS), "feet")], GO1.morphology.mirror).order)
    y = torch.tensor([1.0, -1.0, 1.0])
    qpos = torch.cat([s.qpos[:, :3] * y, s.quat * torch.tensor([1.0, -1, 1, -1]), joint(s.qpos[:, 7:])], dim=1)
    qvel = torch.cat([s.qvel[:, :3] * y, s.qvel[:, 3:6] * -y, joint(s.qvel[:, 6:])], dim=1)
    moving = ("joint_pos", "joint_vel", "torque", "target", "last_target", "older_target", "last_joint_vel")
    feet = ("feet_ground", "feet_force", "last_feet_force", "air_time")
    return dataclasses.replace(
        s, qpos=qpos, qvel=qvel, command=s.command * torch.tensor([1.0, -1, -1]),
        feet_pos=s.feet_pos[:, legs] * y, last_feet_pos=s.last_feet_pos[:, legs] * y,
        **{k: joint(getattr(s, k)) for k in moving}, **{k: getattr(s, k)[:, legs] for k in feet},
    )  # fmt: skip


STAND = GO1.home[2]
TERMS = {
    name: partial(f, height=STAND) if name == "height_error" else f
    for name, f in inspect.getmembers(terms, inspect.isfunction)
    if f.__module__ == terms.__name__ and "s" in inspect.signature(f).parameters
}
GOOD = ("track_velocity", "track_yaw", "air_time", "alive")
COSTS = tuple(sorted(set(TERMS) - set(GOOD) - {"fell"}))


# All of them ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TERMS))
def test_a_term_is_one_finite_number_per_world(name):
    value = TERMS[name](anything())
    assert value.shape == (64,)
    assert torch.isfinite(value).all()


@pytest.mark.parametrize("name", COSTS)
def test_a_cost_is_never_negative_is_paid_and_is_free_at_rest(name):
    value = TERMS[name](anything())
    assert (value >= 0).all()
    assert value.max() > 0
    assert TERMS[name](rest()).abs().max() < 1e-9


def test_costs_have_negative_weights_and_good_things_positive_ones():
    for make in TASKS.values():
        for term in make().rewards:
            name = getattr(getattr(term.value, "func", term.value), "__name__", "")
            assert term.weight < 0 if name in COSTS else term.weight > 0 or name not in GOOD, term.name


@pytest.mark.parametrize("name", sorted(TERMS))
def test_terms_do_not_care_which_way_is_north(name):
    s = anything()
    for yaw in (0.4, 2.0, -3.0):
        assert torch.allclose(TERMS[name](turned(s, yaw)).float(), TERMS[name](s).float(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", sorted(TERMS))
def test_terms_do_not_care_which_side_is_left(name):
    s = anything()
    assert torch.allclose(TERMS[name](mirrored(s)).float(), TERMS[name](s).float(), rtol=1e-5, atol=1e-5)


def test_the_mirror_image_of_the_mirror_image_is_the_scene():
    s = anything()
    twice = mirrored(mirrored(s))
    assert all(torch.equal(getattr(twice, k), getattr(s, k)) for k in FIELDS)


# Frames ----------------------------------------------------------------------------------------------------------------


def test_turning_into_the_body_frame_matches_mujoco():
    g = torch.Generator().manual_seed(1)
    q, v = torch.nn.functional.normalize(torch.randn(50, 4, generator=g)), torch.randn(50, 3, generator=g)
    got, down = rotate_inverse(q, v), gravity_direction(q)
    for i in range(50):
        want, back = np.zeros(3), np.zeros(4)
        mujoco.mju_negQuat(back, q[i].double().numpy())
        mujoco.mju_rotVecQuat(want, v[i].double().numpy(), back)
        assert np.allclose(got[i], want, atol=1e-5)
        mujoco.mju_rotVecQuat(want, np.array([0, 0, -1.0]), back)
        assert np.allclose(down[i], want, atol=1e-5)


# One by one ------------------------------------------------------------------------------------------------------------


def speed(vx: float = 0.0, vy: float = 0.0, vz: float = 0.0, wx: float = 0.0, wy: float = 0.0, wz: float = 0.0) -> Tensor:
    return torch.tensor([[vx, vy, vz, wx, wy, wz, *[0.0] * 12]])


def test_tracking_is_one_when_met_and_falls_with_the_error():
    met = but(qvel=speed(vx=0.6, vy=-0.2), command=[[0.6, -0.2, 0.0]])
    assert terms.track_velocity(met) == pytest.approx(1.0)
    assert terms.track_velocity(but(command=[[0.3, 0.4, 0.0]])) == pytest.approx(math.exp(-0.25 / 0.25))
    values = [terms.track_velocity(but(command=[[c, 0.0, 0.0]])).item() for c in (0, 0.2, 0.5, 1.0)]
    assert values == sorted(values, reverse=True)
    assert terms.track_velocity(but(qvel=speed(vz=3, wz=2))) == pytest.approx(1.0), "only the horizontal velocity counts"


def test_tracking_is_in_the_body_frame():
    half = math.sqrt(0.5)
    qpos = rest().qpos.clone()
    qpos[0, 3:7] = torch.tensor([half, 0, 0, half])
    assert terms.track_velocity(but(qpos=qpos, qvel=speed(vy=0.5), command=[[0.5, 0, 0]])) == pytest.approx(1.0, abs=1e-5)


def test_yaw_tracking_is_one_when_met_and_falls_with_the_error():
    assert terms.track_yaw(but(qvel=speed(wz=0.7), command=[[0, 0, 0.7]])) == pytest.approx(1.0)
    assert terms.track_yaw(but(command=[[0, 0, 0.5]])) == pytest.approx(math.exp(-1))
    assert terms.track_yaw(but(qvel=speed(wx=3, vx=1))) == pytest.approx(1.0)


def test_energy_counts_driving_and_braking():
    tau, qd = torch.zeros(1, 12), torch.zeros(1, 12)
    tau[0, :2], qd[0, :3] = torch.tensor([2.0, -3.0]), torch.tensor([4.0, 5.0, 6.0])
    assert terms.energy(but(torque=tau, joint_vel=qd)) == pytest.approx(2 * 4 + 3 * 5)
    assert terms.energy(but(torque=tau)) == 0
    assert terms.energy(but(joint_vel=qd)) == 0
    assert terms.effort(but(torque=tau)) == pytest.approx(4 + 9)


def test_tilt_is_the_squared_sine():
    for angle in (0.0, 0.3, 1.0, math.pi / 2):
        qpos = rest().qpos.clone()
        qpos[0, 3:7] = torch.tensor([math.cos(angle / 2), math.sin(angle / 2), 0, 0])
        assert terms.tilt(but(qpos=qpos)) == pytest.approx(math.sin(angle) ** 2, abs=1e-6)


def test_bounce_and_wobble_see_their_own_axes():
    assert terms.bounce(but(qvel=speed(vx=1, vy=2, vz=0.5))) == pytest.approx(0.25)
    assert terms.wobble(but(qvel=speed(wx=0.3, wy=-0.4, wz=9))) == pytest.approx(0.25)


def test_height_is_measured_from_the_ground():
    s = but(ground=[0.5], qpos=torch.cat([torch.zeros(1, 2), torch.tensor([[0.85]]), rest().qpos[:, 3:]], dim=1))
    assert terms.height_error(s, height=0.3) == pytest.approx(0.05**2, rel=1e-4)


def test_joint_acceleration_is_the_change_of_speed_per_tick():
    before, after = torch.zeros(1, 12), torch.zeros(1, 12)
    before[0, 3], after[0, 3] = 1.0, 1.4
    assert terms.joint_acceleration(but(joint_vel=after, last_joint_vel=before)) == pytest.approx(20.0**2, rel=1e-4)


def test_action_rate_and_jerk_are_differences_of_targets():
    u = lambda x: DEFAULT + x * torch.eye(12)[0]
    ramp = but(target=u(0.2)[None], last_target=u(0.1)[None], older_target=u(0.0)[None])
    assert terms.action_rate(ramp) == pytest.approx(0.01, rel=1e-4)
    assert terms.action_jerk(ramp) == pytest.approx(0, abs=1e-9)
    zigzag = but(target=u(0.1)[None], last_target=u(0.0)[None], older_target=u(0.1)[None])
    assert terms.action_jerk(zigzag) == pytest.approx(0.04, rel=1e-4)


def test_joint_limits_cost_only_in_the_margin():
    middle = ((LOW + HIGH) / 2)[None]
    assert terms.joint_limits(but(joint_pos=middle)) == 0
    room = 0.05 * (HIGH - LOW)
    assert terms.joint_limits(but(joint_pos=(HIGH - room)[None])) == pytest.approx(0, abs=1e-5)
    assert terms.joint_limits(but(joint_pos=HIGH[None])) == pytest.approx(room.sum().item(), rel=1e-4)
    assert terms.joint_limits(but(joint_pos=LOW[None])) == pytest.approx(room.sum().item(), rel=1e-4)
    assert terms.joint_limits(but(joint_pos=(HIGH + 0.1)[None])) == pytest.approx(room.sum().item() + 1.2, rel=1e-4)


def test_pose_counts_always_and_pose_at_rest_only_without_a_command():
    q = DEFAULT[None] + 0.1
    assert terms.pose(but(joint_pos=q)) == pytest.approx(0.12, rel=1e-4)
    assert terms.pose_at_rest(but(joint_pos=q)) == pytest.approx(0.12, rel=1e-4)
    assert terms.pose_at_rest(but(joint_pos=q, command=[[0.5, 0, 0]])) == 0


def feet(**changes) -> State:
    """Foot 0 changed, the others standing."""
    s = rest()
    values = {}
    for name, value in changes.items():
        x = getattr(s, name).clone()
        x[0, 0] = torch.as_tensor(value)
        values[name] = x
    return dataclasses.replace(s, **values)


def test_slip_needs_load_and_sideways_motion():
    moved = [0.01, 0.0, 0.0]
    assert terms.slip(feet(feet_pos=moved)) == pytest.approx(0.25, rel=1e-4)
    assert terms.slip(feet(feet_pos=[0.0, 0.0, 0.01])) == 0
    assert terms.slip(feet(feet_pos=moved, feet_force=0.0)) == 0
    assert terms.slip(feet(feet_pos=moved, last_feet_force=0.0)) == 0, "a foot that just landed was still moving"


def test_impact_counts_force_above_the_gentle():
    assert terms.impact(feet(feet_force=99.0)) == 0
    assert terms.impact(feet(feet_force=250.0)) == pytest.approx(1.5)


def test_clearance_asks_moving_feet_in_the_air_for_their_height():
    swing = {"feet_force": 0.0, "last_feet_pos": [-0.02, 0.0, 0.03]}
    assert terms.foot_clearance(feet(feet_pos=[0.0, 0.0, 0.03], **swing)) == pytest.approx(0.05**2 * 1.0, rel=1e-3)
    assert terms.foot_clearance(feet(feet_pos=[0.0, 0.0, 0.08], **swing)) == pytest.approx(0, abs=1e-9)
    assert terms.foot_clearance(feet(feet_pos=[0.0, 0.0, 0.58], feet_ground=0.5, **swing)) == pytest.approx(0, abs=1e-9)
    assert terms.foot_clearance(feet(feet_pos=[-0.02, 0.0, 0.03], **swing)) == 0
    assert terms.foot_clearance(feet(feet_pos=[0.0, 0.0, 0.03], last_feet_pos=[-0.02, 0.0, 0.03])) == 0


def test_air_time_is_paid_at_touchdown_while_moving():
    s = dataclasses.replace(feet(air_time=0.4, last_feet_force=0.0), command=torch.tensor([[0.5, 0.0, 0.0]]))
    assert terms.air_time(s) == pytest.approx(0.15, rel=1e-4)
    assert terms.air_time(dataclasses.replace(s, command=torch.zeros(1, 3))) == 0
    assert terms.air_time(dataclasses.replace(s, last_feet_force=s.feet_force)) == 0
    short = dataclasses.replace(s, air_time=s.air_time * 0.25)
    assert terms.air_time(short) < 0, "tripping costs"


def test_asymmetry_compares_left_and_right_load():
    load = torch.tensor([[40.0, 10.0, 20.0, 30.0]])
    assert terms.asymmetry(but(feet_force=load)) == pytest.approx((20 / 100) ** 2, rel=1e-5)
    assert terms.asymmetry(but(feet_force=[[50.0, 0.0, 50.0, 0.0]])) == pytest.approx(1.0)
    assert terms.asymmetry(but(feet_force=torch.zeros(1, 4))) == 0


def test_alive_is_one():
    assert (terms.alive(anything()) == 1).all()


def test_falling_is_low_or_steep():
    def at(height: float, angle: float, ground: float = 0.0) -> bool:
        q = [math.cos(angle / 2), math.sin(angle / 2), 0.0, 0.0]
        return bool(terms.fell(but(qpos=torch.tensor([[0, 0, height, *q, *GO1.default]]), ground=[ground])))

    assert not at(0.29, 0.0)
    assert not at(0.29, 1.0)
    assert at(0.29, 1.1)
    assert at(0.29, math.pi)
    assert at(0.15, 0.0)
    assert at(0.29, 0.0, ground=0.2)
    assert not at(0.49, 0.0, ground=0.2)


# Other robots ----------------------------------------------------------------------------------------------------------


def small(qpos, qvel=None, **changes) -> State:
    """A state of a robot without feet."""
    q = torch.tensor(qpos).float()
    v = torch.zeros(len(q), changes.pop("nv", q.shape[1])) if qvel is None else torch.tensor(qvel).float()
    empty = {k: torch.zeros(len(q), 0) for k in FIELDS}
    given = {k: torch.as_tensor(x).float() for k, x in changes.items()}
    fixed = {"default": torch.zeros(0), "limits": (torch.zeros(0), torch.zeros(0)), "tick": 0.02, "time": torch.zeros(len(q))}
    return State(**(empty | fixed | {"qpos": q, "qvel": v, "joint_pos": q, "joint_vel": v} | given))


def test_a_raised_pendulum_is_upright_at_pi_whatever_the_turns():
    s = small([[0.0], [math.pi / 2], [math.pi], [-math.pi], [3 * math.pi]])
    assert swing_up.height_fraction(s) == pytest.approx([0, 0.5, 1, 1, 1], abs=1e-6)
    assert swing_up.upright_error(s) == pytest.approx([math.pi, math.pi / 2, 0, 0, 0], abs=1e-5)
    assert swing_up.upright_score(s)[2:] == pytest.approx([1, 1, 1], abs=1e-6)
    assert swing_up.upright_score(s)[0] < 1e-9
    left, right = swing_up.upright_error(small([[math.pi - 0.3]])), swing_up.upright_error(small([[math.pi + 0.3]]))
    assert left == pytest.approx(right, abs=1e-5)
    assert left == pytest.approx(0.3, abs=1e-5)


def test_the_pendulums_energy_error_is_zero_on_the_way_up():
    """A pendulum released at rest from upright keeps its energy: what is not height is speed."""
    for q in (0.0, 1.0, 2.5, math.pi):
        rate = math.sqrt(2 * GRAVITY_TORQUE * (math.cos(q) + 1) / INERTIA)
        assert swing_up.energy_error(small([[q]], [[rate]]), INERTIA, GRAVITY_TORQUE) == pytest.approx(0, abs=1e-5)
    assert swing_up.energy_error(small([[0.0]]), INERTIA, GRAVITY_TORQUE) == pytest.approx(1.0)


def test_the_cart_and_pole_are_best_in_the_middle_and_lost_off_the_track():
    at = Indexing.of(cartpole())
    s = dataclasses.replace(small([[0.0, 0.0], [0.0, 0.15], [1.0, 0.0], [-1.0, 0.15]]), at=at)
    assert balance.upright_score(s) == pytest.approx([1, math.exp(-1), 1, math.exp(-1)])
    assert balance.centre_score(s) == pytest.approx([1, 1, math.exp(-1), math.exp(-1)])
    assert balance.balance_score(s) == pytest.approx([1, math.exp(-1), math.exp(-1), math.exp(-2)])
    gone = dataclasses.replace(small([[2.39, 0.0], [2.41, 0.0], [-2.41, 0.0], [0.0, 0.99], [0.0, -1.01]]), at=at)
    assert balance.fell_or_left_track(gone).tolist() == [False, True, True, False, True]


def flying(place, quat=(1.0, 0.0, 0.0, 0.0), command=(0.0, 0.0, 1.5)) -> State:
    return small([[*place, *quat]], nv=6, command=[list(command)])


def test_hovering_is_best_at_the_place_and_falls_with_distance():
    assert hover.position_score(flying((0, 0, 1.5))) == 1
    assert hover.distance(flying((0.3, 0, 1.9))) == pytest.approx(0.5)
    assert hover.position_score(flying((0.4, 0, 1.5))) == pytest.approx(math.exp(-1))
    assert hover.out_of_bounds(flying((0, 0, 0.04), command=(0, 0, 1.0)))
    assert hover.out_of_bounds(flying((3.1, 0, 1.5)))
    assert not hover.out_of_bounds(flying((1.0, 0, 1.5)))


def test_the_heading_error_sees_yaw_and_not_tilt():
    def error(axis: int, angle: float) -> float:
        quat = [math.cos(angle / 2), 0.0, 0.0, 0.0]
        quat[1 + axis] = math.sin(angle / 2)
        return hover.heading_error(flying((0, 0, 1.5), quat)).item()

    for angle in (-2.0, 0.5, 1.2, math.pi):
        assert error(2, angle) == pytest.approx(1 - math.cos(angle), abs=1e-5)
    assert error(0, 0.9) == pytest.approx(0, abs=1e-5)
    assert error(1, 0.9) == pytest.approx(0, abs=1e-5)


def test_flying_costs_speed_and_spin():
    s = small([[0, 0, 1.5, 1, 0, 0, 0]], [[1.0, -2.0, 2.0, 0.5, 0.0, 0.0]], command=[[0, 0, 1.5]])
    assert hover.squared_speed(s) == pytest.approx(9.0)
    assert hover.squared_turn_rate(s) == pytest.approx(0.25)
