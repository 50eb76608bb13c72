"""Laws of what robots and policies agree on: it survives any file and any wire, and what is not it is refused in a sentence."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from isthmus.core.errors import BadInput
from isthmus.core.from_plain import MAX_ITEMS, MAX_TEXT_LENGTH, from_plain
from isthmus.core.statistics import Rate
from isthmus.data.contract import AffineFeedback, Contract, Safety, Signal
from isthmus.deploy.links import wire
from isthmus.deploy.links.link import MODES, Command, Identity, Packet
from isthmus.deploy.manifest import Manifest
from support.contracts import arm
from support.controllers import manifest

# Round trips ---------------------------------------------------------------------------------------------------------

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(max_size=6)


def per(size: int, numbers=NUMBERS):
    return st.tuples(*[numbers] * size)


@st.composite
def signals(draw, name: str | None = None) -> Signal:
    labels = tuple(draw(st.lists(WORDS, min_size=1, max_size=4, unique=True)))
    low, high = (), ()
    if draw(st.booleans()):
        pairs = [sorted(draw(st.tuples(NUMBERS, NUMBERS))) for _ in labels]
        low, high = tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)
    return Signal(draw(WORDS) if name is None else name, draw(WORDS).replace(",", ""), labels, draw(WORDS), low, high)


@st.composite
def random_contracts(draw) -> Contract:
    names = draw(st.lists(WORDS, min_size=1, max_size=5, unique=True))
    target = draw(signals(names[0]))
    found = tuple(draw(signals(name)) for name in names[1:])
    m = target.size
    law = None
    if draw(st.booleans()):
        gains = {s.name: tuple(draw(per(s.size)) for _ in range(m)) for s in found if draw(st.booleans())}
        law = AffineFeedback(draw(per(m)), gains)
    positive = st.floats(0, 1e6)
    rows = {k: draw(st.just(()) | per(m, positive)) for k in ("effort", "damping")}
    safety = Safety(**rows, tilt=draw(positive), rest=draw(st.just(()) | per(m)), level=law)
    gains = draw(st.dictionaries(st.sampled_from(["kp", "kd", "ki"]), per(m)))
    rate = draw(st.floats(1e-3, 1e4))
    return Contract(draw(WORDS), rate, found, target, gains, safety)


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


def assert_survives(contract: Contract) -> None:
    again = Contract.from_dict(through_json(contract.to_dict()))
    assert again == contract
    assert again.hash == contract.hash
    identity = Identity(contract, "unit 7", "h", "damp", 0.1, "virtual")
    assert wire.unpack_identity(wire.pack_identity(identity)) == identity
    inside = np.zeros(contract.target.size)
    limits = [contract.target.low or inside - 1, contract.target.high or inside + 1]
    made = replace(manifest(arm(), np.zeros(2), b""), robot=contract, inputs=(), default=tuple(limits[0]))
    if contract.signals:
        made = replace(made, inputs=tuple(s.name for s in contract.signals if s.name != "command"))
    assert Manifest.from_dict(through_json(made.to_dict()), "here") == made


def test_contract_identity_and_manifest_of_every_robot_survive_json(robot):
    assert_survives(robot.contract)


@given(random_contracts())
@settings(max_examples=60)
def test_contract_identity_and_manifest_of_any_robot_survive_json(contract):
    assert_survives(contract)


@given(random_contracts(), st.data())
@settings(max_examples=40)
def test_a_contract_with_any_other_number_has_another_hash(contract, data):
    other = replace(contract, rate=data.draw(st.floats(1e-3, 1e4).filter(lambda r: r != contract.rate)))
    assert other.hash != contract.hash
    assert Contract.from_dict(through_json(other.to_dict())) != contract


def test_slices_lie_side_by_side_and_cover_everything(robot):
    for contract in (robot.contract, arm()):
        at = list(contract.slices().values())
        assert [s.start for s in at] == [0, *(s.stop for s in at[:-1])]
        assert at[-1].stop == contract.width == sum(s.size for s in contract.signals)


# What is refused -----------------------------------------------------------------------------------------------------

TWO = (0.0, 0.0)
WRONG = {
    "no labels": (lambda c: replace(c.target, labels=()), "distinct labels"),
    "labels twice": (lambda c: replace(c.target, labels=("a", "a")), "distinct labels"),
    "limits of another size": (lambda c: replace(c.target, low=(0.0,)), "2 labels but 1 limits"),
    "limits crossed": (lambda c: replace(c.target, low=(3.0, 0.0)), "above its upper"),
    "no rate": (lambda c: replace(c, rate=0.0), "0 Hz"),
    "a rate beyond reason": (lambda c: replace(c, rate=1e5), "100000 Hz"),
    "two signals of one name": (lambda c: replace(c, signals=(c.signals[0],) * 2), "two signals"),
    "a signal named as the target": (lambda c: replace(c, target=replace(c.target, name="quat")), "two signals"),
    "gains of another size": (lambda c: replace(c, gains={"kp": (1.0,)}), "1 numbers for kp"),
    "effort of another size": (lambda c: replace(c, safety=Safety(effort=(1.0,))), "1 numbers for effort"),
    "a negative effort": (lambda c: replace(c, safety=Safety(effort=(1.0, -1.0))), "negative effort"),
    "a negative damping": (lambda c: replace(c, safety=Safety(damping=(1.0, -1.0))), "negative damping"),
    "a negative tilt": (lambda c: replace(c, safety=Safety(tilt=-0.1)), "negative tilt"),
    "rest of another size": (lambda c: replace(c, safety=Safety(rest=(1.0,))), "1 numbers for rest"),
    "a law with another constant": (lambda c: replace(c, safety=Safety(level=AffineFeedback((0.0,)))), "levelling law"),
    "a law with narrow rows": (
        lambda c: replace(c, safety=Safety(level=AffineFeedback(TWO, {"quat": (TWO, TWO)}))), "levelling law",
    ),
    "a law of no signal": (
        lambda c: replace(c, safety=Safety(level=AffineFeedback(TWO, {"quot": (TWO, TWO)}))), "did you mean 'quat'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_contract_that_makes_no_sense_is_refused(what):
    make, words = WRONG[what]
    with pytest.raises(BadInput, match=words):
        make(arm())


def manifest_with(**changes) -> Manifest:
    return replace(manifest(arm(), np.zeros(2), b""), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inputs": ("joint_poss",)}, "did you mean 'joint_pos'"),
        ({"inputs": ("gyro", "gyro")}, "distinct"),
        ({"inputs": (), "operator": ()}, "at least one"),
        ({"inputs": ("gyro",), "operator": (Signal("gyro", "1", ("x",)),)}, "distinct"),
        ({"default": (0.0,)}, "1 numbers for 2 targets"),
        ({"default": (0.0, 1.6)}, "outside"),
        ({"default": (-2.1, 0.0)}, "outside"),
        ({"memory": {"a": (3, 0)}}, "empty shape"),
        ({"memory": {"a": (1,) * 9}}, "8 dimensions"),
        ({"memory": {"a": (2**10, 2**10), "b": (1,)}}, "more than"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(changes, words):
    with pytest.raises(BadInput, match=words):
        manifest_with(**changes)


def test_a_manifest_at_the_edge_of_what_is_allowed_is_not_refused():
    manifest_with(default=(2.0, -1.5), memory={"a": (2**9, 2**10), "b": (2**19,)})
    manifest_with(default=(-2.0, 1.5), memory={"a": (1,) * 8, "b": ()})


# The strict reader ---------------------------------------------------------------------------------------------------

NAMES = (
    "robot rate signals target gains safety name unit labels frame low high effort tilt rest damping level constant kp kind "
    "task inputs operator memory default model_hash contract mode timeout source"
)
KEYS = st.sampled_from(NAMES.split()) | st.text(st.characters(), max_size=3)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=4) | st.binary(max_size=2)
    | st.sampled_from(["contract", "controller", "damp", "real", 10**400])
)  # fmt: skip
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.integers(), inner, max_size=6), max_leaves=12
)


@st.composite
def damaged(draw, data):
    """A good table in which one thing, anywhere, is exchanged, left out or added."""
    if isinstance(data, dict) and data and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(data)))
        how = draw(st.sampled_from(["deeper", "deeper", "deeper", "without", "more"]))
        if how == "without":
            return {k: v for k, v in data.items() if k != key}
        if how == "more":
            return data | {draw(KEYS): draw(TREES)}
        return data | {key: draw(damaged(data[key]))}
    if isinstance(data, list) and data and draw(st.integers(0, 3)):
        i = draw(st.integers(0, len(data) - 1))
        return [*data[:i], draw(damaged(data[i])), *data[i + 1 :]]
    return draw(TREES)


READERS = {
    "contract": (lambda d: Contract.from_dict(d, "here"), arm().to_dict()),
    "manifest": (lambda d: Manifest.from_dict(d, "here"), manifest_with().to_dict()),
    "identity": (lambda d: from_plain(Identity, d, "here"), asdict(Identity(arm(), "u", "", "idle", 0.1))),
}


@pytest.mark.parametrize("kind", READERS)
@given(st.data())
@settings(max_examples=120)
def test_any_data_give_what_they_say_or_bad_input(kind, data):
    reader, good = READERS[kind]
    good = through_json(good)
    given_ = data.draw(damaged(good) | TREES)
    try:
        made = reader(given_)
    except BadInput as error:
        str(error).encode()
    else:
        # What is accepted can be written, hashed and read again.
        json.dumps(asdict(made), allow_nan=False, ensure_ascii=False).encode()
        again = reader(through_json({"kind": good["kind"]} | asdict(made) if "kind" in good else asdict(made)))
        assert again == made


def nested(depth: int) -> list:
    data: list = []
    for _ in range(depth):
        data = [data]
    return data


BEYOND = {
    "lists in lists": nested(20_000),
    "a number of 5,000 digits": 10**5000,
    "half a character": "\ud800",
    "a long text": "x" * (MAX_TEXT_LENGTH + 1),
    "a long list": [0] * (MAX_ITEMS + 1),
    "a long table": dict.fromkeys(map(str, range(MAX_ITEMS + 1)), ()),
    "a table with half a character": {"\ud800": ()},
    "no number": math.nan,
}


@pytest.mark.parametrize("what", BEYOND)
@pytest.mark.parametrize("field", ["robot", "rate", "signals", "gains", "target"])
def test_what_is_beyond_reason_is_refused_by_every_kind_of_field(field, what):
    with pytest.raises(BadInput, match=f"here: {field}") as error:
        Contract.from_dict(arm().to_dict() | {field: BEYOND[what]}, "here")
    assert len(str(error.value)) < 400


def test_numbers_are_numbers_and_nothing_else_is():
    for bad in (True, "1", None, [1.0], math.inf, -math.inf, 10**400):
        with pytest.raises(BadInput, match="here: rate must be a"):
            Contract.from_dict(arm().to_dict() | {"rate": bad}, "here")
    whole = Contract.from_dict(arm().to_dict() | {"rate": 100}, "here")
    assert whole.rate == 100.0
    assert type(whole.rate) is float


@pytest.mark.parametrize(
    ("path", "wrong", "right"),
    [
        ((), "signls", "signals"),
        (("target",), "lables", "labels"),
        (("signals", 0), "untis", "unit"),
        (("safety",), "efort", "effort"),
        (("safety",), "dampng", "damping"),
    ],
)
def test_a_misspelt_name_gets_the_right_one_and_the_place(path, wrong, right):
    data = through_json(arm().to_dict())
    inner = data
    for step in path:
        inner = inner[step]
    inner[wrong] = inner.pop(right)
    with pytest.raises(BadInput, match=f"unknown entry '{wrong}' in here.*did you mean '{right}'") as error:
        Contract.from_dict(data, "here")
    assert all(str(step) in str(error.value) for step in path)


@pytest.mark.parametrize(("field", "wrong", "right"), [("mode", "dampp", "damp"), ("source", "vitrual", "virtual")])
def test_a_misspelt_choice_gets_the_right_one(field, wrong, right):
    data = asdict(Identity(arm(), "u", "", "idle", 0.1)) | {field: wrong}
    with pytest.raises(BadInput, match=f"{wrong}.*did you mean '{right}'"):
        from_plain(Identity, through_json(data), "here")


def test_a_missing_entry_is_named():
    data = through_json(arm().to_dict())
    del data["target"]["labels"]
    with pytest.raises(BadInput, match="target lacks 'labels'"):
        Contract.from_dict(data, "here")


# The wire ------------------------------------------------------------------------------------------------------------

ROWS = st.lists(st.floats(width=64), max_size=8).map(np.array)
SEQUENCES = st.integers(0, 2**64 - 1)


def same_bits(a, b) -> bool:
    return struct.pack("<d", a) == struct.pack("<d", b)


@given(SEQUENCES, st.floats(), st.sampled_from(MODES), ROWS)
def test_packets_and_commands_cross_the_wire_bit_for_bit(sequence, time, mode, row):
    row = np.asarray(row, float)
    packet = wire.unpack_packet(wire.pack_packet(Packet(sequence, time, mode, row)))
    command = wire.unpack_command(wire.pack_command(Command(sequence, time, mode, row)))
    assert packet is not None
    assert command is not None
    for got, values in ((packet, packet.values), (command, command.target)):
        assert (got.sequence, got.mode) == (sequence, mode)
        assert same_bits(got.time, time)
        assert values.tobytes() == row.tobytes()
    assert wire.unpack_command(wire.pack_packet(packet)) is None
    assert wire.unpack_packet(wire.pack_command(command)) is None


@given(st.data())
def test_any_other_bytes_are_neither_packet_nor_command(data):
    whole = wire.pack_packet(Packet(3, 1.5, "track", np.arange(4.0)))
    cut = data.draw(st.integers(0, len(whole) - 1))
    more = data.draw(st.binary(min_size=1, max_size=9))
    noise = data.draw(st.binary(max_size=80) | st.binary(max_size=80).map(lambda b: b"IsP1" + b))
    for bad in (whole[:cut], whole + more):
        assert wire.unpack_packet(bad) is None
    for unpack in (wire.unpack_packet, wire.unpack_command):
        found = unpack(noise)
        assert found is None or found.mode in MODES


def test_a_packet_that_claims_more_than_it_has_or_may_have_is_none():
    head = struct.Struct("<4sQdQBI")
    assert wire.unpack_packet(head.pack(b"IsP2", 0, 0.0, 7, 0, 1) + bytes(8)) is not None
    assert wire.unpack_packet(head.pack(b"IsP2", 0, 0.0, 7, 0, 2) + bytes(8)) is None
    assert wire.unpack_packet(head.pack(b"IsP2", 0, 0.0, 7, len(MODES), 1) + bytes(8)) is None
    n = wire.MAX_VALUES
    assert wire.unpack_packet(head.pack(b"IsP2", 0, 0.0, 7, 0, n) + bytes(8 * n)) is not None
    assert wire.unpack_packet(head.pack(b"IsP2", 0, 0.0, 7, 0, n + 1) + bytes(8 * (n + 1))) is None


GOOD = wire.pack_identity(Identity(arm(), "u", "", "idle", 0.1))


CUT = st.builds(lambda end, i: GOOD[: i % len(GOOD)] + end, st.binary(max_size=8), st.integers(0, 5000))
AS_JSON = TREES.map(lambda tree: json.dumps(tree, default=str, skipkeys=True).encode())


@given(st.binary(max_size=60) | CUT | AS_JSON)
@example(b"[" * 100_000)
@example(b'{"contract": ' + b"[" * 900 + b"]" * 900 + b"}")
@example(GOOD[:-1] + b" " * wire.MAX_IDENTITY_BYTES + b"}")
@example(b'"\\ud800"')
def test_any_other_bytes_are_no_identity(data):
    with pytest.raises(BadInput, match="the robot's answer"):
        wire.unpack_identity(data)


# Rates ---------------------------------------------------------------------------------------------------------------


@given(st.integers(0, 100_000), st.floats(0, 1), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
@example(1, 0.0, 0.95)
@example(1, 1.0, 0.95)
@example(30_000, 0.001, 0.95)
@example(1_000_000, 0.5, 0.95)
@example(1_000_000, 1e-6, 0.95)
@settings(max_examples=60)
def test_the_interval_of_a_rate_is_that_of_clopper_and_pearson(n, share, level):
    hits = round(n * share)
    found = Rate.from_counts(hits, n, level)
    if n == 0:
        assert math.isnan(found.rate)
        assert (found.low, found.high, found.n) == (0.0, 1.0, 0)
        return
    exact = stats.binomtest(hits, n).proportion_ci(level, method="exact")
    assert found.rate == hits / n
    assert found.n == n
    assert found.low == pytest.approx(exact.low, rel=1e-7, abs=1e-12)
    assert found.high == pytest.approx(exact.high, rel=1e-7, abs=1e-12)
