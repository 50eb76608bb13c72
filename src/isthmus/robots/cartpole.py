"""Cart and pole: a pole hinged on a cart that is pushed along a track.

Figures, and where they come from:

- Cart 1 kg, pole 0.1 kg, distance from the hinge to the pole's centre 0.5 m, force ±10 N, track ±2.4 m, friction at the
  hinge 2e-6 N·m·s/rad: Barto, Sutton and Anderson, "Neuronlike adaptive elements that can solve difficult learning
  control problems", 1983. The pole is a thin uniform rod: with it the model's accelerations are those of their equations.
- Coulomb friction of the cart 0.0005 N: theirs too. A cart on real rails loses more, so the prior reaches 1 N and
  0.5 N·s/m, which are our estimates.
- Their cart has no motor. Rotor inertia seen at the cart (nominally none), motor lag, delays and noises: our estimates
  for a cart on a belt with a small direct-current motor and encoders of a few thousand counts.

The pole's angle is 0 upright, and positive when it leans towards +x.
"""

from __future__ import annotations

from isthmus.data.contract import Contract, Safety, Signal
from isthmus.robots.parameters import delays, factor, offset, space_and_prior, vary
from isthmus.sim.morphology import Mirror, Morphology, PayloadMount, Root
from isthmus.sim.robot import MotorParams, Robot

TIMESTEP, SUBSTEPS = 0.005, 4
CART_MASS, POLE_MASS, POLE_HALF_LENGTH = 1.0, 0.1, 0.5
MAX_FORCE, TRACK_HALF_LENGTH = 10.0, 2.4
HINGE_DAMPING, CART_COULOMB_FRICTION = 2e-6, 5e-4
MOTOR_LAG = 0.005
SAFETY_DAMPING = 5.0
"""N·s/m, our choice: stops the cart within half a second."""


def _xml() -> str:
    across = POLE_MASS * (2 * POLE_HALF_LENGTH) ** 2 / 12
    return f"""
<mujoco model="cartpole">
  <compiler angle="radian" autolimits="true"/>
  <option timestep="{TIMESTEP}" integrator="implicitfast"><flag contact="disable"/></option>
  <default><geom contype="0" conaffinity="0" mass="0"/></default>
  <asset>
    <material name="rail" rgba="0.45 0.48 0.52 1"/><material name="cart" rgba="0.25 0.27 0.32 1"/>
    <material name="pole" rgba="0.95 0.55 0.15 1"/>
  </asset>
  <worldbody>
    <light pos="0 -2 4" dir="0 0.4 -1" directional="true"/>
    <geom type="capsule" size="0.02" fromto="{-TRACK_HALF_LENGTH - 0.2} 0 1 {TRACK_HALF_LENGTH + 0.2} 0 1" material="rail"/>
    <body name="cart" pos="0 0 1">
      <inertial pos="0 0 0" mass="{CART_MASS}" diaginertia="0.003 0.006 0.006"/>
      <joint name="slider" type="slide" axis="1 0 0" range="{-TRACK_HALF_LENGTH - 0.1} {TRACK_HALF_LENGTH + 0.1}"/>
      <geom type="box" size="0.12 0.08 0.05" material="cart"/>
      <body name="pole">
        <inertial pos="0 0 {POLE_HALF_LENGTH}" mass="{POLE_MASS}" diaginertia="{across} {across} 1e-6"/>
        <joint name="hinge" type="hinge" axis="0 1 0" damping="{HINGE_DAMPING}"/>
        <geom type="capsule" size="0.02" fromto="0 0 0 0 0 {2 * POLE_HALF_LENGTH}" material="pole"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="slider" joint="slider"/></actuator>
</mujoco>"""


def cartpole() -> Robot:
    contract = Contract(
        robot="cartpole",
        rate=1.0 / (TIMESTEP * SUBSTEPS),
        signals=(
            Signal("cart_pos", "m", ("slider",), low=(-TRACK_HALF_LENGTH,), high=(TRACK_HALF_LENGTH,)),
            Signal("cart_vel", "m/s", ("slider",)),
            Signal("pole_pos", "rad", ("hinge",)),
            Signal("pole_vel", "rad/s", ("hinge",)),
        ),
        target=Signal("cart_force", "N", ("slider",), low=(-MAX_FORCE,), high=(MAX_FORCE,)),
        safety=Safety(effort=(MAX_FORCE,), rest=(0.0,), damping=(SAFETY_DAMPING,)),
    )
    space, prior = space_and_prior(_ranges())
    return Robot(
        name="cartpole",
        doc="pole on a cart, force targets at 50 Hz",
        xml=_xml(),
        contract=contract,
        sources={"cart_pos": "qpos", "cart_vel": "qvel", "pole_pos": "qpos", "pole_vel": "qvel"},
        motors=MotorParams(drive="effort", coulomb=(CART_COULOMB_FRICTION,), viscous=(0.0,), lag=(MOTOR_LAG,)),
        morphology=Morphology(
            roots=(Root("cart"),),
            mirror=Mirror(negated=("(cart|pole)_(pos|vel)/.*", "target/slider", "e/(com_x|.*_offset)")),
            payload=PayloadMount(at=(0.0, 0.0, 2 * POLE_HALF_LENGTH)),
        ),
        space=space,
        prior=prior,
        home=(0.0, 0.0),
        default=(0.0,),
        substeps=SUBSTEPS,
    )


def _ranges():
    yield factor("cart_mass", "body:cart/mass", (0.4, 2.5), (0.85, 1.15), doc="mass of the cart")
    yield factor("pole_mass", "body:pole/mass", (0.4, 2.5), (0.85, 1.15), doc="mass of the pole, with its inertia")
    yield vary("payload", "kg", "body:pole/payload", 0.0, (0.0, 0.3), (0.0, 0.05), doc="mass at the tip of the pole")
    yield offset("com_x", "m", "body:pole/com[0]", 0.1, 0.02, doc="the pole's centre of mass lies beside its axis")
    yield offset("com_z", "m", "body:pole/com[2]", 0.2, 0.05, doc="the pole's centre of mass lies higher")
    yield factor(
        "strength", "motor:slider/strength", (0.3, 1.5), (0.85, 1.1), doc="force that the motor gives, against what was asked"
    )
    yield vary("cart_damping", "N·s/m", "motor:slider/viscous", 0.0, (0.0, 5.0), (0.0, 0.5), doc="viscous friction of the cart")
    yield vary(
        "cart_friction",
        "N",
        "motor:slider/coulomb",
        CART_COULOMB_FRICTION,
        (0.0, 4.0),
        (0.0, 1.0),
        doc="Coulomb friction of the cart",
    )
    yield vary(
        "pole_damping", "N·m·s/rad", "joint:hinge/damping", HINGE_DAMPING, (0.0, 0.05), (0.0, 2e-3), doc="friction of the hinge"
    )
    yield vary("armature", "kg", "joint:slider/armature", 0.0, (0.0, 1.0), (0.0, 0.1), doc="rotor inertia seen at the cart")
    yield vary(
        "motor_lag",
        "s",
        "motor:slider/lag",
        MOTOR_LAG,
        (1e-4, 0.1),
        (2e-3, 0.02),
        scale="log",
        doc="time constant of the force",
    )
    yield from delays(action=(0.005, 0.06, 0.02), sensor=(0.005, 0.04, 0.01))
    yield offset("cart_offset", "m", "signal:cart_pos/bias[slider]", 0.2, 0.02, doc="calibration error of the cart's encoder")
    yield offset("pole_offset", "rad", "signal:pole_pos/bias[hinge]", 0.1, 0.02, doc="calibration error of the pole's encoder")
    yield vary("cart_pos_noise", "m", "signal:cart_pos/noise", 0.001, (0.0, 0.05), (0.0, 0.005), doc="standard deviation")
    yield vary("cart_vel_noise", "m/s", "signal:cart_vel/noise", 0.02, (0.0, 0.5), (0.005, 0.05), doc="standard deviation")
    yield vary("pole_pos_noise", "rad", "signal:pole_pos/noise", 0.002, (0.0, 0.1), (0.0, 0.005), doc="standard deviation")
    yield vary("pole_vel_noise", "rad/s", "signal:pole_vel/noise", 0.05, (0.0, 2.0), (0.01, 0.15), doc="standard deviation")
