"""Small models of an arm and a biped, as a stranger would bring them."""

from __future__ import annotations

ARM = """<mujoco><option timestep="0.004"/><worldbody><body name="upper" pos="0 0 0.5">
  <joint name="shoulder" axis="0 1 0" range="-2 2" armature="0.02"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0.3 0 0" mass="0.5"/>
  <body name="fore" pos="0.3 0 0"><joint name="elbow" axis="0 1 0" range="-2.5 2.5" armature="0.02"/>
  <geom type="capsule" size="0.02" fromto="0 0 0 0.25 0 0" mass="0.3"/>
  <site name="tip" pos="0.25 0 0"/><site name="middle" pos="0.1 0 0"/>
  <body name="jaw" pos="0.25 0 0"><joint name="finger" type="slide" axis="0 0 1" range="0 0.02"/>
  <geom type="box" size="0.01 0.01 0.01" mass="0.01"/></body></body></body></worldbody>
  <actuator><position name="a" joint="shoulder" kp="40" kv="4"/><position name="b" joint="elbow" kp="30" kv="3"/>
  <position name="c" joint="finger" kp="30" kv="3"/></actuator></mujoco>"""

BIPED = """<mujoco><option timestep="0.004"/><worldbody><body name="hip" pos="0 0 0.63"><freejoint/>
  <geom type="box" size="0.1 0.1 0.05" mass="3"/>{legs}</body></worldbody>
  <actuator>{motors}</actuator></mujoco>"""
BIPED_LEG = """<body name="{s}_thigh" pos="0 {y} 0"><joint name="{s}_hip" axis="0 1 0" range="-1 1" armature="0.01"/>
  <geom type="capsule" size="0.03" fromto="0 0 0 0 0 -0.3" mass="0.5"/>
  <body name="{s}_shank" pos="0 0 -0.3"><joint name="{s}_knee" axis="0 1 0" range="-1.5 0.1" armature="0.01"/>
  <geom type="capsule" size="0.025" fromto="0 0 0 0 0 -0.26" mass="0.3"/>
  <geom name="{s}_foot" type="box" size="0.08 0.04 0.02" pos="0.02 0 -0.28" mass="0.1"/></body></body>"""


def biped_xml() -> str:
    legs = "".join(BIPED_LEG.format(s=s, y=y) for s, y in (("left", 0.1), ("right", -0.1)))
    joints = [f"{s}_{j}" for s in ("left", "right") for j in ("hip", "knee")]
    return BIPED.format(legs=legs, motors="".join(f'<position name="{j}" joint="{j}" kp="60" kv="2"/>' for j in joints))
