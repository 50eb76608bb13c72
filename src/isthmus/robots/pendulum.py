"""A torque-limited simple pendulum: a weight on a rod, driven at the hinge by a motor too weak to lift it directly.

Figures, and where they come from (DFKI's torque-limited simple pendulum, Wiebe et al., Journal of Open Source Software
2022, and the figures published with it, unless said otherwise):

- Weight with its mount 0.546 kg, radius 0.045 m, at 0.5 m; rod 0.08 kg; mount at the axle 0.05 kg, radius 0.02 m.
- T-Motor AK80-6: gear 6:1, peak torque 12 N·m and 38.2 rad/s at the output, rotor inertia 6.0719e-5 kg·m², which is
  36 times that at the joint.
- Torque command limited to 1.5 N·m: their limit for swinging up by energy shaping. Gravity pulls with up to 2.9 N·m.
- Viscous friction 0.1 N·m·s/rad: their parameter files. Coulomb friction 0.1 N·m: our estimate, about 1 % of the
  peak torque of a motor with so small a gear; the prior starts at none.
- Viscous friction ends at 0.3 N·m·s/rad, our choice: from about 0.23 on, full torque puts less into a swing than friction takes
  out, and hidden realities, which stay clear of the end, leave the robot able to work.
- Encoder of 12 bits, 0.0015 rad: the noise of the position. Noise of the velocity, motor lag and delays: our estimates
  for a current loop of some kHz and a CAN bus at a few hundred messages per second.

The angle is 0 hanging and π upright, positive anticlockwise as seen along -y.
"""

from __future__ import annotations

from isthmus.core.constants import MODEL_GRAVITY
from isthmus.data.contract import Contract, Safety, Signal
from isthmus.robots.parameters import delays, factor, offset, space_and_prior, vary
from isthmus.sim.morphology import Mirror, Morphology, Root
from isthmus.sim.robot import MotorParams, Robot

JOINT = ("hinge",)
TIMESTEP, SUBSTEPS = 0.005, 4
LENGTH = 0.5
WEIGHT_MASS, ROD_MASS, AXLE_MASS = 0.546, 0.08, 0.05
WEIGHT_RADIUS, AXLE_RADIUS = 0.045, 0.02
ARMATURE = 36 * 6.0719e-5
TORQUE_LIMIT, PEAK_TORQUE, NO_LOAD_SPEED = 1.5, 12.0, 38.2
VISCOUS_FRICTION, COULOMB_FRICTION = 0.1, 0.1
MOTOR_LAG = 0.005
SAFETY_DAMPING = 0.3
"""N·m·s/rad, our choice: brings the pendulum to rest within some swings."""

GRAVITY_TORQUE = MODEL_GRAVITY * LENGTH * (WEIGHT_MASS + ROD_MASS / 2)
"""N·m: gravity's torque with the rod level."""
INERTIA = (
    WEIGHT_MASS * (LENGTH**2 + WEIGHT_RADIUS**2 / 2) + ROD_MASS * LENGTH**2 / 3 + AXLE_MASS * AXLE_RADIUS**2 / 2 + ARMATURE
)
"""kg·m²: all that turns, about the hinge."""


def _xml() -> str:
    centre = ROD_MASS * LENGTH / 2 / (ROD_MASS + AXLE_MASS)
    own = ROD_MASS * LENGTH**2 / 3 + AXLE_MASS * AXLE_RADIUS**2 / 2
    across = own - (ROD_MASS + AXLE_MASS) * centre**2
    disc = WEIGHT_MASS * WEIGHT_RADIUS**2
    axle = AXLE_MASS * AXLE_RADIUS**2 / 2
    return f"""
<mujoco model="pendulum">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{TIMESTEP}" integrator="implicitfast"><flag contact="disable" constraint="disable"/></option>
  <default><geom contype="0" conaffinity="0" mass="0"/></default>
  <asset>
    <material name="steel" rgba="0.75 0.77 0.8 1"/><material name="motor" rgba="0.16 0.17 0.20 1"/>
    <material name="weight" rgba="0.95 0.55 0.15 1"/>
  </asset>
  <worldbody>
    <light pos="0 -2 3" dir="0 0.5 -1" directional="true"/>
    <geom type="cylinder" size="0.049 0.019" euler="1.5708 0 0" pos="0 0.04 1" material="motor"/>
    <body name="rod" pos="0 0 1">
      <inertial pos="0 0 {-centre}" mass="{ROD_MASS + AXLE_MASS}" diaginertia="{across} {across} {axle}"/>
      <joint name="hinge" type="hinge" axis="0 -1 0" armature="{ARMATURE}"/>
      <geom type="capsule" size="0.006" fromto="0 0 0 0 0 {-LENGTH}" material="steel"/>
      <body name="weight" pos="0 0 {-LENGTH}">
        <inertial pos="0 0 0" mass="{WEIGHT_MASS}" diaginertia="{disc / 4} {disc / 2} {disc / 4}"/>
        <geom type="cylinder" size="{WEIGHT_RADIUS} 0.012" euler="1.5708 0 0" material="weight"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="hinge" joint="hinge"/></actuator>
</mujoco>"""


def pendulum() -> Robot:
    contract = Contract(
        robot="pendulum",
        rate=1.0 / (TIMESTEP * SUBSTEPS),
        signals=(
            Signal("joint_pos", "rad", JOINT),
            Signal("joint_vel", "rad/s", JOINT, low=(-NO_LOAD_SPEED,), high=(NO_LOAD_SPEED,)),
        ),
        target=Signal("joint_torque", "N·m", JOINT, low=(-TORQUE_LIMIT,), high=(TORQUE_LIMIT,)),
        safety=Safety(effort=(PEAK_TORQUE,), rest=(0.0,), damping=(SAFETY_DAMPING,)),
    )
    space, prior = space_and_prior(_ranges())
    return Robot(
        name="pendulum",
        doc="torque-limited simple pendulum with an AK80-6 motor, torque targets at 50 Hz",
        xml=_xml(),
        contract=contract,
        sources={"joint_pos": "qpos", "joint_vel": "qvel"},
        motors=MotorParams(
            drive="effort",
            torque_limit=(PEAK_TORQUE,),
            speed_limit=(NO_LOAD_SPEED,),
            coulomb=(COULOMB_FRICTION,),
            viscous=(VISCOUS_FRICTION,),
            lag=(MOTOR_LAG,),
        ),
        morphology=Morphology(
            roots=(Root("rod"),),
            mirror=Mirror(negated=("angle/sin_.*", "joint_vel/.*", "target/.*", "e/(com_x|encoder_offset)")),
        ),
        space=space,
        prior=prior,
        home=(0.0,),
        default=(0.0,),
        substeps=SUBSTEPS,
    )


def _ranges():
    yield factor("weight_mass", "body:weight/mass", (0.5, 2.0), (0.85, 1.15), doc="mass of the weight, with its inertia")
    yield factor("rod_mass", "body:rod/mass", (0.5, 2.0), (0.85, 1.15), doc="mass of rod and axle, with their inertia")
    yield vary("payload", "kg", "body:weight/payload", 0.0, (0.0, 0.5), (0.0, 0.08), doc="mass added to the weight")
    yield offset("com_x", "m", "body:weight/com[0]", 0.05, 0.01, doc="the weight sits beside the rod's axis")
    yield offset("com_z", "m", "body:weight/com[2]", 0.05, 0.01, doc="the weight sits higher on the rod")
    yield factor(
        "strength", "motor:hinge/strength", (0.3, 1.5), (0.9, 1.1), doc="torque that the motor gives, against what was asked"
    )
    yield vary(
        "joint_damping", "N·m·s/rad", "motor:hinge/viscous", VISCOUS_FRICTION, (0.0, 0.3), (0.02, 0.15), doc="viscous friction"
    )
    yield vary("joint_friction", "N·m", "motor:hinge/coulomb", COULOMB_FRICTION, (0.0, 0.6), (0.0, 0.2), doc="Coulomb friction")
    yield vary(
        "armature",
        "kg·m²",
        "joint:hinge/armature",
        ARMATURE,
        (5e-4, 0.02),
        (1.5e-3, 4e-3),
        scale="log",
        doc="rotor inertia seen at the joint",
    )
    yield vary(
        "motor_lag",
        "s",
        "motor:hinge/lag",
        MOTOR_LAG,
        (1e-4, 0.1),
        (2e-3, 0.015),
        scale="log",
        doc="time constant of the torque",
    )
    yield from delays(action=(0.005, 0.06, 0.02), sensor=(0.005, 0.04, 0.01))
    yield offset("encoder_offset", "rad", "signal:joint_pos/bias[hinge]", 0.2, 0.03, doc="calibration error of the encoder")
    yield vary(
        "joint_pos_noise", "rad", "signal:joint_pos/noise", 0.0015, (0.0, 0.05), (0.0005, 0.005), doc="standard deviation"
    )
    yield vary("joint_vel_noise", "rad/s", "signal:joint_vel/noise", 0.1, (0.0, 2.0), (0.02, 0.3), doc="standard deviation")
