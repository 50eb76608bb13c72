"""Unitree Go1: a 12 kg quadruped with twelve quasi-direct-drive joints.

Figures, and where they come from:

- Masses, centres of mass, inertias, link lengths, joint ranges: Unitree's `go1_description` URDF, as carried in
  MuJoCo Menagerie `unitree_go1` (BSD-3-Clause). Left and right legs mirror each other.
- Torque 23.7 N·m and speed 30.1 rad/s at hip and thigh, 35.55 N·m and 20.06 rad/s at the calf: the same URDF's
  joint limits. The calf has a further reduction of 1.5, which is their ratio.
- Armature 0.01 kg·m²: Menagerie's value. Coulomb friction 0.2 N·m: Menagerie's frictionloss.
- Gains 35 N·m/rad and 0.5 N·m·s/rad: MuJoCo Playground's Go1 joystick policies, which walk on the real robot
  (Zakka et al., 2025). Weaker gains of 20 N·m/rad, also in use, let the stance sag until it collapses unless a
  policy holds it up.
- Stance of 0.8 rad at the thigh and -1.5 rad at the calf: Margolis and Agrawal, "Walk These Ways", 2022.
- Foot radius 0.023 m: Menagerie.
- Range of the gyroscope 2,000 degrees/s, of the accelerometer 16 g: usual for the inertial sensors of such robots.
- Lying pose, damping of 3 N·m·s/rad when everything else has failed, and a tilt of 1 rad from which there is no way back:
  our choices.
"""

from __future__ import annotations

from isthmus.data.contract import Contract, Safety, Signal, vector_signal
from isthmus.robots.parameters import delays, factor, offset, space_and_prior, vary
from isthmus.sim.morphology import Foot, Leg, Mirror, Morphology, PayloadMount, Root
from isthmus.sim.robot import MotorParams, Robot

LEGS = ("FR", "FL", "RR", "RL")
"""Unitree's own order."""
LEG_JOINTS = ("hip", "thigh", "calf")
JOINTS = tuple(f"{leg}_{part}" for leg in LEGS for part in LEG_JOINTS)

TIMESTEP, SUBSTEPS = 0.005, 4
JOINT_RANGE = {"hip": (-0.863, 0.863), "thigh": (-0.686, 4.501), "calf": (-2.818, -0.888)}
TORQUE_LIMIT = {"hip": 23.7, "thigh": 23.7, "calf": 35.55}
SPEED_LIMIT = {"hip": 30.1, "thigh": 30.1, "calf": 20.06}
STANCE = {"hip": 0.0, "thigh": 0.8, "calf": -1.5}
HOME_HEIGHT = 0.32
KP, KD = 35.0, 0.5
LYING_POSE = {"hip": 0.0, "thigh": 1.3, "calf": -2.7}
SAFETY_DAMPING = 3.0
MAX_TILT = 1.0
GYRO_RANGE, ACCEL_RANGE = 34.9, 156.9


def _per_joint(table: dict[str, float]) -> tuple[float, ...]:
    return tuple(table[part] for _ in LEGS for part in LEG_JOINTS)


def _leg(leg: str) -> str:
    x = 1 if leg[0] == "F" else -1
    y = 1 if leg[1] == "L" else -1
    return f"""
      <body name="{leg}_hip" pos="{x * 0.1881} {y * 0.04675} 0">
        <inertial pos="{-x * 0.0049166} {-y * 0.00762615} -8.865e-05" mass="0.68"
          fullinertia="0.000469 0.000734 0.000399 {x * y * 1e-05} 0 0"/>
        <joint name="{leg}_hip" axis="1 0 0" range="-0.863 0.863"/>
        <geom class="visual" type="cylinder" size="0.046 0.022" pos="0 {y * 0.05} 0" euler="1.5708 0 0" material="joint"/>
        <body name="{leg}_thigh" pos="0 {y * 0.08} 0">
          <inertial pos="-0.00304722 {-y * 0.019315} -0.0305004" mass="1.009"
            fullinertia="0.0046 0.0047 0.00078 0 -0.00033 {y * 0.00055}"/>
          <joint name="{leg}_thigh" axis="0 1 0" range="-0.686 4.501"/>
          <geom class="visual" type="capsule" size="0.018" fromto="0 0 0 0 0 -0.213" material="link"/>
          <body name="{leg}_calf" pos="0 0 -0.213">
            <inertial pos="0.00429862 {y * 0.000976676} -0.146197" mass="0.195862"
              diaginertia="0.00149767 0.00148468 3.58427e-05"/>
            <joint name="{leg}_calf" axis="0 1 0" range="-2.818 -0.888"/>
            <geom class="visual" type="capsule" size="0.011" fromto="0 0 0 0 0 -0.213" material="link"/>
            <geom name="{leg}_foot" class="foot" pos="0 0 -0.213"/>
            <site name="{leg}_foot" pos="0 0 -0.213" size="0.01"/>
          </body>
        </body>
      </body>"""


def _xml() -> str:
    motors = "".join(f'<motor name="{j}" joint="{j}"/>' for j in JOINTS)
    contacts = "".join(
        f'<contact name="{leg}_contact" geom1="{leg}_foot" data="found force" reduce="netforce"/>' for leg in LEGS
    )
    belly = "".join(f'<geom class="belly" pos="{x} {y} 0"/>' for x in (-0.18, 0.18) for y in (-0.04, 0.04))
    return f"""
<mujoco model="go1">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{TIMESTEP}" solver="PGS" iterations="4" integrator="implicitfast" cone="pyramidal"/>
  <default>
    <joint armature="0.01"/>
    <default class="visual"><geom contype="0" conaffinity="0" group="2" mass="0"/></default>
    <default class="foot"><geom type="sphere" size="0.023" condim="3" contype="1" conaffinity="0" material="foot"/></default>
    <default class="belly"><geom type="sphere" size="0.057" condim="3" contype="1" conaffinity="0" group="3"/></default>
  </default>
  <asset>
    <material name="body" rgba="0.85 0.85 0.88 1"/><material name="link" rgba="0.25 0.27 0.32 1"/>
    <material name="joint" rgba="0.16 0.17 0.20 1"/><material name="foot" rgba="0.95 0.55 0.15 1"/>
    <material name="ground" rgba="0.42 0.47 0.52 1"/>
  </asset>
  <worldbody>
    <light pos="0 0 3" dir="0 0 -1" directional="true"/>
    <geom name="floor" type="plane" size="20 20 0.1" contype="0" conaffinity="1" condim="3" priority="1"
      friction="0.8 0.02 0.01" solref="0.02 1" material="ground"/>
    <body name="trunk" pos="0 0 {HOME_HEIGHT}">
      <freejoint name="root"/>
      <inertial pos="0.0223 0.002 -0.0005" quat="-0.00342088 0.705204 0.000106698 0.708996" mass="5.204"
        diaginertia="0.0716565 0.0630105 0.0168101"/>
      <geom class="visual" type="box" size="0.19 0.06 0.055" material="body"/>
      <geom class="visual" type="box" size="0.03 0.045 0.045" pos="0.22 0 0.01" material="link"/>
      {belly}
      <site name="imu" size="0.01"/>{"".join(_leg(leg) for leg in LEGS)}
    </body>
  </worldbody>
  <actuator>{motors}</actuator>
  <sensor>{contacts}</sensor>
</mujoco>"""


def go1() -> Robot:
    low, high = (tuple(JOINT_RANGE[p][i] for _ in LEGS for p in LEG_JOINTS) for i in (0, 1))
    contract = Contract(
        robot="go1",
        rate=1.0 / (TIMESTEP * SUBSTEPS),
        signals=(
            Signal("joint_pos", "rad", JOINTS, low=low, high=high),
            Signal("joint_vel", "rad/s", JOINTS, low=tuple(-v for v in _per_joint(SPEED_LIMIT)), high=_per_joint(SPEED_LIMIT)),
            vector_signal("gyro", "rad/s", "body", GYRO_RANGE),
            Signal("quat", "1", ("w", "x", "y", "z"), "world"),
            vector_signal("accel", "m/s²", "body", ACCEL_RANGE),
        ),
        target=Signal("joint_target", "rad", JOINTS, low=low, high=high),
        gains={"kp": (KP,) * 12, "kd": (KD,) * 12},
        safety=Safety(
            effort=_per_joint(TORQUE_LIMIT), tilt=MAX_TILT, rest=_per_joint(LYING_POSE), damping=(SAFETY_DAMPING,) * 12
        ),
    )
    space, prior = space_and_prior(_ranges())
    stance = _per_joint(STANCE)
    return Robot(
        name="go1",
        doc="Unitree Go1 quadruped, 12 joints, position targets at 50 Hz",
        xml=_xml(),
        contract=contract,
        sources={"joint_pos": "qpos", "joint_vel": "qvel", "gyro": "angvel:root", "quat": "quat:root", "accel": "accel:root"},
        motors=MotorParams(
            drive="position",
            kp=(KP,) * 12,
            kd=(KD,) * 12,
            torque_limit=_per_joint(TORQUE_LIMIT),
            speed_limit=_per_joint(SPEED_LIMIT),
            coulomb=(0.2,) * 12,
            viscous=(0.01,) * 12,
        ),
        morphology=_morphology(),
        space=space,
        prior=prior,
        home=(0.0, 0.0, HOME_HEIGHT, 1.0, 0.0, 0.0, 0.0, *stance),
        default=stance,
        substeps=SUBSTEPS,
    )


def _morphology() -> Morphology:
    return Morphology(
        roots=(Root("trunk", "root"),),
        legs=tuple(
            Leg(
                name=leg,
                side="left" if leg[1] == "L" else "right",
                joints=tuple(f"{leg}_{part}" for part in LEG_JOINTS),
                foot=Foot.of_geom(f"{leg}_foot"),
            )
            for leg in LEGS
        ),
        mirror=Mirror(
            pairs=(("FR", "FL"), ("RR", "RL")),
            negated=(
                ".*/.*_hip",
                "gyro/[xz]",
                "(gravity|lin_vel|force)/y",
                "phase/.*",
                "command/(sideways|yaw)",
                "e/(com_y|gyro_bias_[xz])",
            ),
        ),
        payload=PayloadMount(at=(0.0, 0.0, 0.1)),
    )


def _ranges():
    yield vary(
        "ground_friction",
        "1",
        "geom:floor/friction[0]",
        0.8,
        (0.05, 3.0),
        (0.2, 1.5),
        scale="log",
        doc="sliding friction between foot and ground",
    )
    yield vary(
        "contact_time",
        "s",
        "geom:floor/solref[0]",
        0.02,
        (0.01, 0.08),
        (0.012, 0.03),
        scale="log",
        doc="time constant of the contact: larger is softer ground",
    )
    for part in ("trunk", "hip", "thigh", "calf"):
        body = "trunk" if part == "trunk" else f".*_{part}"
        yield factor(f"{part}_mass", f"body:{body}/mass", (0.5, 2.0), (0.85, 1.15), doc=f"mass of the {part}, with its inertia")
    yield vary("payload", "kg", "body:trunk/payload", 0.0, (0.0, 8.0), (0.0, 2.0), doc="mass strapped onto the back")
    for i, axis in enumerate("xyz"):
        yield offset(f"com_{axis}", "m", f"body:trunk/com[{i}]", 0.08, 0.02, doc="shift of the trunk's centre of mass")
    for leg in LEGS:
        yield factor(
            f"strength_{leg}",
            (f"motor:{leg}_.*/strength", f"motor:{leg}_.*/torque_limit"),
            (0.3, 1.5),
            (0.85, 1.1),
            doc="torque that the motors of this leg give, against what was asked",
        )
    yield factor("kp", "motor:.*/kp", (0.3, 3.0), (0.85, 1.15), doc="proportional gain of the motor controllers")
    yield factor("kd", "motor:.*/kd", (0.3, 3.0), (0.75, 1.3), doc="derivative gain of the motor controllers")
    yield vary(
        "joint_damping", "N·m·s/rad", "motor:.*/viscous", 0.01, (0.0, 0.5), (0.0, 0.05), doc="viscous friction in the joints"
    )
    yield vary("joint_friction", "N·m", "motor:.*/coulomb", 0.2, (0.0, 1.5), (0.0, 0.4), doc="Coulomb friction in the joints")
    yield vary(
        "armature",
        "kg·m²",
        "joint:.*_(hip|thigh|calf)/armature",
        0.01,
        (0.002, 0.05),
        (0.006, 0.015),
        scale="log",
        doc="rotor inertia seen at the joint",
    )
    yield from delays(action=(0.01, 0.06, 0.02), sensor=(0.005, 0.04, 0.01))
    for axis in "xyz":
        yield offset(
            f"gyro_bias_{axis}", "rad/s", f"signal:gyro/bias[{axis}]", 0.3, 0.05, doc="constant error of the gyroscope"
        )
    for joint in JOINTS:
        yield offset(
            f"encoder_offset_{joint}",
            "rad",
            f"signal:joint_pos/bias[{joint}]",
            0.2,
            0.02,
            doc="calibration error of the encoder",
        )
    yield vary("joint_pos_noise", "rad", "signal:joint_pos/noise", 0.005, (0.0, 0.1), (0.002, 0.015), doc="standard deviation")
    yield vary("joint_vel_noise", "rad/s", "signal:joint_vel/noise", 0.3, (0.0, 5.0), (0.1, 1.0), doc="standard deviation")
    yield vary("gyro_noise", "rad/s", "signal:gyro/noise", 0.05, (0.0, 1.0), (0.02, 0.2), doc="standard deviation")
    yield vary("quat_noise", "1", "signal:quat/noise", 0.005, (0.0, 0.1), (0.0, 0.015), doc="standard deviation per component")
    yield vary("accel_noise", "m/s²", "signal:accel/noise", 0.2, (0.0, 5.0), (0.05, 0.5), doc="standard deviation")
