"""Bitcraze Crazyflie 2.x: a 27 g quadrotor in X configuration, with thrust-commanded motors.

Figures, and where they come from:

- Mass 27 g with battery: Bitcraze's specification.
- Inertia with its products, arm 46 mm from centre to motor, ratio of yaw moment to thrust 5.964552e-3 m, drag
  coefficients 9.1785e-7 N·s²/(m·rad) per rotor, maps from motor command to thrust and rotor speed: Förster, "System
  Identification of the Crazyflie 2.0 Nano Quadrocopter", ETH Zürich 2015. By these maps the rotors turn at about
  1,860 rad/s in hover, which makes a drag of 6.8e-3 N·s/m on the whole vehicle.
- Motors and directions: Bitcraze's documentation. m1 front right, m2 rear right, m3 rear left, m4 front left; m1 and m3
  turn anticlockwise as seen from above, so that the body feels a clockwise moment.
- Thrust to weight 2.25: gym-pybullet-drones (Panerati et al., 2021), cf2x.
- Motor lag 0.0375 s: a quarter of the settling time 0.15 s of Molchanov et al., "Sim-to-(Multi)-Real", 2019. Published
  time constants go from 0.0125 s to about 0.07 s.
- Noises and delays: our estimates for motion capture at 100 Hz or more with a radio link, and for the BMI088 gyroscope.

Drag is expressed through the viscosity of the air, with which MuJoCo makes a force in proportion to speed from the
box of equal inertia. It brings a small moment against turning, with a time constant of some seconds.
"""

from __future__ import annotations

from math import pi, sqrt

import numpy as np

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.data.contract import AffineFeedback, Contract, Safety, Signal, vector_signal
from isthmus.robots.parameters import delays, factor, offset, space_and_prior, vary
from isthmus.sim.morphology import Mirror, Morphology, PayloadMount, Root, Rotor
from isthmus.sim.robot import MotorParams, Robot

MOTORS = ("m1", "m2", "m3", "m4")
ROTOR_POSITION_SIGNS = {"m1": (1, -1), "m2": (-1, -1), "m3": (-1, 1), "m4": (1, 1)}
"""Signs of x (forward) and y (left)."""
YAW_MOMENT_SIGNS = {"m1": -1, "m2": 1, "m3": -1, "m4": 1}
"""Sign of the moment about z that the body feels."""

TIMESTEP, SUBSTEPS = 0.005, 4
MASS = 0.027
INERTIA = (16.571710e-6, 16.655602e-6, 29.261652e-6, 0.830806e-6, 0.718277e-6, 1.800197e-6)
"""xx, yy, zz, xy, xz, yz, kg·m²."""
ARM_XY = 0.046 / sqrt(2)
YAW_MOMENT_PER_THRUST = 5.964552e-3
"""m: yaw moment per thrust."""
HOVER_THRUST = MASS * MODEL_GRAVITY / 4
MAX_THRUST = 2.25 * HOVER_THRUST
MOTOR_LAG = 0.0375
DRAG_COEFFICIENT = 6.8e-3
HOME_HEIGHT = 1.5
MAX_TILT = 1.4
"""rad: our choice; tilts of up to 60 degrees are part of its task."""


def _viscosity() -> float:
    """Pa·s: F = 3 π d β v with d the mean edge of the box of equal inertia."""
    xx, yy, zz, xy, xz, yz = INERTIA
    principal = np.linalg.eigvalsh([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    edges = np.sqrt(6 * (principal.sum() - 2 * principal) / MASS)
    return DRAG_COEFFICIENT / (3 * pi * float(edges.mean()))


def _xml() -> str:
    sites, arms, motors = "", "", ""
    for name in MOTORS:
        x, y = (ARM_XY * sign for sign in ROTOR_POSITION_SIGNS[name])
        sites += f'<site name="{name}" pos="{x} {y} 0.01" size="0.004"/>'
        arms += f'<geom class="visual" type="capsule" size="0.0025" fromto="0 0 0 {x} {y} 0" material="frame"/>'
        arms += f'<geom class="visual" type="cylinder" size="0.0035 0.008" pos="{x} {y} 0.003" material="motor"/>'
        arms += f'<geom class="visual" type="cylinder" size="0.023 0.0007" pos="{x} {y} 0.013" material="rotor"/>'
        motors += f'<motor name="{name}" site="{name}" gear="0 0 1 0 0 {YAW_MOMENT_SIGNS[name] * YAW_MOMENT_PER_THRUST}"/>'
    return f"""
<mujoco model="crazyflie">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{TIMESTEP}" integrator="implicitfast" viscosity="{_viscosity()}"/>
  <default><default class="visual"><geom contype="0" conaffinity="0" group="2" mass="0"/></default></default>
  <asset>
    <material name="frame" rgba="0.16 0.17 0.20 1"/><material name="motor" rgba="0.7 0.72 0.75 1"/>
    <material name="rotor" rgba="0.35 0.6 0.9 0.5"/><material name="battery" rgba="0.95 0.55 0.15 1"/>
    <material name="ground" rgba="0.42 0.47 0.52 1"/>
  </asset>
  <worldbody>
    <light pos="0 0 4" dir="0 0 -1" directional="true"/>
    <geom name="floor" type="plane" size="5 5 0.1" contype="0" conaffinity="1" material="ground"/>
    <body name="body" pos="0 0 {HOME_HEIGHT}">
      <freejoint name="root"/>
      <inertial pos="0 0 0" mass="{MASS}" fullinertia="{" ".join(map(str, INERTIA))}"/>
      <geom name="hull" type="box" size="0.045 0.045 0.012" contype="1" conaffinity="0" group="3" mass="0"/>
      <geom class="visual" type="box" size="0.016 0.016 0.002" material="frame"/>
      <geom class="visual" type="box" size="0.015 0.0085 0.004" pos="0 0 0.007" material="battery"/>
      {arms}{sites}
    </body>
  </worldbody>
  <actuator>{motors}</actuator>
</mujoco>"""


def _levelling_law() -> AffineFeedback:
    """Sink upright: 1.8 times the quaternion's x and y is about 0.9 times the sine of roll and pitch."""
    attitude = tuple(
        (
            0.0,
            -1.8 * 0.15 * ROTOR_POSITION_SIGNS[m][1] * HOVER_THRUST,
            1.8 * 0.15 * ROTOR_POSITION_SIGNS[m][0] * HOVER_THRUST,
            0.0,
        )
        for m in MOTORS
    )
    turning = tuple(
        (
            -0.18 * 0.15 * ROTOR_POSITION_SIGNS[m][1] * HOVER_THRUST,
            0.18 * 0.15 * ROTOR_POSITION_SIGNS[m][0] * HOVER_THRUST,
            -0.3 * 0.15 * YAW_MOMENT_SIGNS[m] * HOVER_THRUST,
        )
        for m in MOTORS
    )
    return AffineFeedback((0.97 * HOVER_THRUST,) * 4, {"quat": attitude, "gyro": turning})


def crazyflie() -> Robot:
    contract = Contract(
        robot="crazyflie",
        rate=1.0 / (TIMESTEP * SUBSTEPS),
        signals=(
            vector_signal("position", "m", "world"),
            vector_signal("velocity", "m/s", "world"),
            Signal("quat", "1", ("w", "x", "y", "z"), "world"),
            vector_signal("gyro", "rad/s", "body"),
        ),
        target=Signal("thrust", "N", MOTORS, low=(0.0,) * 4, high=(MAX_THRUST,) * 4),
        safety=Safety(effort=(MAX_THRUST,) * 4, tilt=MAX_TILT, rest=(0.0,) * 4, level=_levelling_law()),
    )
    space, prior = space_and_prior(_ranges())
    return Robot(
        name="crazyflie",
        doc="Crazyflie 2.x quadrotor, thrust targets per rotor at 50 Hz",
        xml=_xml(),
        contract=contract,
        sources={"position": "pos:root", "velocity": "linvel:root", "quat": "quat:root", "gyro": "angvel:root"},
        motors=MotorParams(drive="effort", lag=(MOTOR_LAG,) * 4),
        morphology=_morphology(),
        space=space,
        prior=prior,
        home=(0.0, 0.0, HOME_HEIGHT, 1.0, 0.0, 0.0, 0.0),
        default=(HOVER_THRUST,) * 4,
        substeps=SUBSTEPS,
    )


def _morphology() -> Morphology:
    return Morphology(
        roots=(Root("body", "root"),),
        rotors=tuple(Rotor(name, name, YAW_MOMENT_SIGNS[name]) for name in MOTORS),
        mirror=Mirror(
            pairs=(("m1", "m4"), ("m2", "m3")),
            negated=(
                "(position|velocity|lin_vel|error|command|gravity|force)/y",
                "gyro/[xz]",
                "action/(roll|yaw)",
                "quat/[xz]",
                "attitude/(xy|yx|yz|zy)",
                "e/(com_y|position_bias_y|trim_x|gyro_bias_[xz])",
            ),
        ),
        payload=PayloadMount(at=(0.0, 0.0, -0.01), radius=0.015),
    )


def _ranges():
    yield factor("mass", "body:body/mass", (0.5, 2.0), (0.85, 1.15), doc="mass of the vehicle, with its inertia")
    yield vary(
        "payload", "kg", "body:body/payload", 0.0, (0.0, 0.015), (0.0, 0.005), doc="a deck or marker mount below the body"
    )
    for i, axis in enumerate("xyz"):
        yield offset(f"com_{axis}", "m", f"body:body/com[{i}]", 0.02, 0.0015, doc="shift of the centre of mass")
    yield factor("strength", "motor:m[1-4]/strength", (0.3, 1.5), (0.85, 1.1), doc="thrust of all rotors: battery, air, wear")
    for motor in MOTORS:
        yield factor(
            f"strength_{motor}",
            f"motor:{motor}/strength",
            (0.3, 1.5),
            (0.94, 1.06),
            doc="thrust that this rotor gives, against the others",
        )
    yield factor("yaw_moment", "actuator:m[1-4]/gear[5]", (0.3, 3.0), (0.75, 1.3), doc="yaw moment per thrust")
    yield vary(
        "motor_lag",
        "s",
        "motor:m[1-4]/lag",
        MOTOR_LAG,
        (1e-3, 0.2),
        (0.02, 0.075),
        scale="log",
        doc="time constant of the thrust",
    )
    yield factor("drag", "opt:/viscosity", (0.05, 20.0), (0.5, 2.0), doc=f"air drag, against {DRAG_COEFFICIENT:g} N·s/m")
    yield from delays(action=(0.005, 0.05, 0.01), sensor=(0.005, 0.05, 0.01))
    for axis in "xyz":
        yield offset(
            f"position_bias_{axis}", "m", f"signal:position/bias[{axis}]", 0.2, 0.01, doc="error of the positioning system"
        )
    for axis in "xy":
        yield offset(
            f"trim_{axis}", "1", f"signal:quat/bias[{axis}]", 0.1, 0.008, doc="half the attitude's constant error, rad"
        )
    for axis in "xyz":
        yield offset(
            f"gyro_bias_{axis}", "rad/s", f"signal:gyro/bias[{axis}]", 0.3, 0.03, doc="constant error of the gyroscope"
        )
    yield vary("position_noise", "m", "signal:position/noise", 0.002, (0.0, 0.1), (0.0005, 0.008), doc="standard deviation")
    yield vary("velocity_noise", "m/s", "signal:velocity/noise", 0.02, (0.0, 0.5), (0.005, 0.05), doc="standard deviation")
    yield vary(
        "quat_noise", "1", "signal:quat/noise", 0.002, (0.0, 0.1), (0.0005, 0.006), doc="standard deviation per component"
    )
    yield vary("gyro_noise", "rad/s", "signal:gyro/noise", 0.03, (0.0, 1.0), (0.01, 0.1), doc="standard deviation")
