"""What a robot has: roots, legs with feet, arms with end effectors, rotors, cameras, and its mirror symmetry.

Names only, of bodies, joints, geoms, sites and sensors of its model; `indexing` turns them into columns. Tasks, realities and
diagnosis ask a Morphology what a robot can do (`floats`, `legged`, `flies`) instead of recognizing robots.
"""

from __future__ import annotations

from dataclasses import dataclass

from isthmus.world.inertia import PAYLOAD_RADIUS


@dataclass(frozen=True)
class Root:
    """First body of a kinematic tree."""

    body: str
    joint: str = ""
    """Its free joint; empty where the body is fixed to the world or guided by hinges and slides."""


@dataclass(frozen=True)
class Foot:
    geoms: tuple[str, ...]
    """Geoms that touch the ground: one for a round foot, several for a sole."""
    site: str
    """Site at the foot, whose position is the foot's."""
    sensor: str
    """Contact sensor with the fields `found` and `force`, net over all contacts."""

    @staticmethod
    def of_geom(geom: str) -> Foot:
        """A foot of one geom, with the names that our models give its site and sensor."""
        return Foot((geom,), geom, geom.removesuffix("_foot") + "_contact")


@dataclass(frozen=True)
class Leg:
    name: str
    side: str
    """`left`, `right` or empty."""
    joints: tuple[str, ...]
    """From the hip to the foot."""
    foot: Foot


@dataclass(frozen=True)
class Arm:
    name: str
    side: str
    """`left`, `right` or empty."""
    joints: tuple[str, ...]
    """From the shoulder to the wrist, without the gripper."""
    end_effector: str
    """Site at the end effector."""
    gripper: tuple[str, ...] = ()
    """Joints of the gripper."""


@dataclass(frozen=True)
class Rotor:
    motor: str
    """Component of the contract's target: thrust along the site's z axis."""
    site: str
    spin: int
    """Sign of the moment about z that the body feels, +1 or -1."""


@dataclass(frozen=True)
class CameraMount:
    name: str
    """Camera of the model."""
    body: str


@dataclass(frozen=True)
class Mirror:
    """Reflection in the robot's sagittal plane: which label swaps with which, and which components change sign."""

    pairs: tuple[tuple[str, str], ...] = ()
    """Label prefixes or whole labels that swap places, e.g. ("FL", "FR")."""
    negated: tuple[str, ...] = ()
    """`signal/label` patterns (regular expressions) that change sign."""


@dataclass(frozen=True)
class PayloadMount:
    """Where a payload sits on the body that carries it, as the Space's `payload` parameters put it there."""

    at: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """m, in the frame of the carrying body."""
    radius: float = PAYLOAD_RADIUS
    """m, of the sphere that it is."""


@dataclass(frozen=True)
class Morphology:
    roots: tuple[Root, ...]
    """The robot's own root first."""
    legs: tuple[Leg, ...] = ()
    arms: tuple[Arm, ...] = ()
    rotors: tuple[Rotor, ...] = ()
    cameras: tuple[CameraMount, ...] = ()
    mirror: Mirror | None = None
    payload: PayloadMount = PayloadMount()

    @property
    def root(self) -> Root:
        return self.roots[0]

    @property
    def base(self) -> str:
        """Body of the floating root, on which pushes and wind act; empty where the robot's root does not float."""
        return self.root.body if self.floats else ""

    @property
    def floats(self) -> bool:
        """Whether the robot's root moves freely."""
        return bool(self.root.joint)

    @property
    def feet(self) -> tuple[Foot, ...]:
        return tuple(leg.foot for leg in self.legs)

    @property
    def foot_geoms(self) -> tuple[str, ...]:
        """Geoms of all feet, in the order of the legs."""
        return tuple(geom for foot in self.feet for geom in foot.geoms)

    @property
    def legged(self) -> bool:
        """Whether feet on the ground carry a floating root."""
        return self.floats and bool(self.legs)

    @property
    def flies(self) -> bool:
        """Whether rotors carry a floating root."""
        return self.floats and bool(self.rotors)

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def lacks(self, *parts: str) -> str | None:
        """What of `parts` the robot does not have, in words, or None: floats, legs, arms, rotors, cameras or mirror."""
        words = {
            "floats": "a root that moves freely",
            "legs": "legs with feet",
            "arms": "an arm with an end effector",
            "rotors": "rotors",
            "cameras": "a camera",
            "mirror": "a mirror symmetry",
        }
        missing = [words[part] for part in parts if not getattr(self, part)]
        return f"it has no {' and no '.join(w.removeprefix('a ').removeprefix('an ') for w in missing)}" if missing else None
