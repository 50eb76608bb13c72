"""A stranger's file can do no harm: damaged files, odd archives, contracts that disagree with their graphs."""

from __future__ import annotations

import contextlib
import io
import json
import zipfile
from dataclasses import replace

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash
from isthmus.deploy import onnx_controller as controller_module
from isthmus.deploy.onnx_controller import OnnxController, pack_controller, save_controller, unpack_controller
from support.controllers import CONTRACT, DEFAULT, GOOD, constant, floats, manifest, model, refuse, small, summing

# Damaged files -------------------------------------------------------------------------------------------------------


def test_packing_and_unpacking_give_the_same_and_always_the_same_bytes(tmp_path):
    made, raw = unpack_controller(GOOD, "here")
    assert pack_controller(made, raw) == GOOD
    assert save_controller(tmp_path / "a", made, raw) == content_hash(GOOD) == OnnxController.load(tmp_path / "a").hash
    with zipfile.ZipFile(io.BytesIO(GOOD)) as file:
        assert file.namelist() == ["contract.json", "controller.onnx"]
        assert json.loads(file.read("contract.json"))["robot"]["robot"] == "arm"


def test_a_file_cut_anywhere_is_refused(exported):
    for length in range(len(GOOD)):
        with pytest.raises(BadInput):
            unpack_controller(GOOD[:length], "here")
    whole = exported.path.read_bytes()
    for length in (*range(0, len(whole), len(whole) // 200), *range(len(whole) - 200, len(whole))):
        with pytest.raises(BadInput):
            unpack_controller(whole[:length], "here")


def test_a_file_with_any_bit_flipped_is_refused(exported):
    def flipped(data: bytes, bit: int) -> bytes:
        out = bytearray(data)
        out[bit // 8] ^= 1 << bit % 8
        return bytes(out)

    for bit in range(len(GOOD) * 8):
        with pytest.raises(BadInput):
            unpack_controller(flipped(GOOD, bit), "here")
    whole = exported.path.read_bytes()
    n, heads = (
        8 * len(whole),
        [whole.index(b"PK\3\4"), whole.rindex(b"PK\3\4"), whole.index(b"PK\1\2"), whole.rindex(b"PK\5\6")],
    )
    random = np.random.default_rng(0).integers(0, n, 200).tolist()
    for bit in (*random, *range(n - 8 * 200, n, 7), *(8 * at + i for at in heads for i in range(0, 8 * 22, 5))):
        with pytest.raises(BadInput):
            unpack_controller(flipped(whole, bit), "here")


def signed(body: bytes) -> bytes:
    return body + content_hash(body).encode()


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_random_bytes_are_refused_signed_or_not(data):
    for candidate in (data, signed(data), signed(b"PK\3\4" + data), signed(data + GOOD[-64 - 22 : -64])):
        with pytest.raises(BadInput):
            unpack_controller(candidate, "here")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
@settings(max_examples=150)
def test_a_stranger_who_signs_damaged_bytes_gets_bad_input_at_worst(changes, directory):
    """In the archive, above all in its directory at the end."""
    body = bytearray(GOOD[:-64])
    start = body.index(b"PK\1\2") if directory else 0
    for at, value in changes:
        body[start + at % (len(body) - start)] = value
    with contextlib.suppress(BadInput):
        OnnxController(*unpack_controller(signed(bytes(body)), "here"))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=120)
def test_a_graph_with_damaged_bytes_is_a_bad_input_at_worst(changes):
    raw = bytearray(summing(CONTRACT, DEFAULT).SerializeToString())
    for at, value in changes:
        raw[at % len(raw)] = value
    with contextlib.suppress(BadInput):
        OnnxController(manifest(CONTRACT, DEFAULT, bytes(raw)), bytes(raw))


# Archives ------------------------------------------------------------------------------------------------------------


def archive(entries, compression=zipfile.ZIP_STORED) -> bytes:
    """Signed as `pack` does it."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as file:
        for name, content in entries:
            file.writestr(zipfile.ZipInfo(name), content, compression)
        file.comment = b"0" * 64
    return signed(data.getvalue()[:-64])


def entries(data: bytes = GOOD) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return [(name, file.read(name)) for name in file.namelist()]


def test_an_archive_made_by_hand_is_accepted(tmp_path):
    """So what the next tests refuse is refused for its own reason."""
    (tmp_path / "a").write_bytes(archive(entries()))
    assert OnnxController.load(tmp_path / "a").manifest == unpack_controller(GOOD, "here")[0]


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda e: [*e, ("extra.txt", b"")], "exactly"),
        (lambda e: [*e, e[0]], "exactly"),
        (lambda e: [e[0], e[0]], "exactly"),
        (lambda e: e[:1], "exactly"),
        (lambda e: [], "exactly"),
        (lambda e: [("../contract.json", e[0][1]), e[1]], "exactly"),
        (lambda e: [("/contract.json", e[0][1]), e[1]], "exactly"),
        (lambda e: [("contract.json/", b""), e[1]], "exactly"),
        (lambda e: [("Contract.json", e[0][1]), e[1]], "exactly"),
        (lambda e: [("contract.json", b"[]"), e[1]], "not a controller's contract"),
        (lambda e: [("contract.json", b"{"), e[1]], "not a controller"),
        (lambda e: [("contract.json", b"[" * 100_000), e[1]], "not a controller"),
        (lambda e: [("contract.json", b"\xff"), e[1]], "not a controller"),
        (lambda e: [("contract.json", b"1" * 5000), e[1]], "not a controller"),
        (lambda e: [("contract.json", e[0][1][:-1] + b" " * 2**20 + b"}"), e[1]], "larger than 1 MiB"),
        (lambda e: [e[0], ("controller.onnx", e[1][1] + b"\0")], "another graph"),
    ],
)
def test_an_archive_with_anything_else_in_it_is_refused(tmp_path, make, words):
    assert words in refuse(archive(make(entries())), tmp_path / "a")


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_compressed_archive_is_refused(tmp_path, compression):
    """What is small on disk and large in memory cannot be."""
    assert "compressed" in refuse(archive(entries(), compression), tmp_path / "a")


def test_a_graph_or_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.touch()
    with path.open("r+b") as file:
        file.truncate(controller_module.MAX_GRAPH + 2 * controller_module.MAX_MANIFEST + 1)
    with pytest.raises(BadInput, match="too large"):
        OnnxController.load(path)
    size = len(entries()[1][1])
    monkeypatch.setattr(controller_module, "MAX_GRAPH", size)
    unpack_controller(GOOD, "here")
    monkeypatch.setattr(controller_module, "MAX_GRAPH", size - 1)
    with pytest.raises(BadInput, match=r"controller\.onnx is compressed, or larger"):
        unpack_controller(GOOD, "here")


def test_a_file_that_is_not_there_is_a_bad_input(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match="cannot read"):
            OnnxController.load(path)


# Contracts that disagree with their graphs ---------------------------------------------------------------------------


def with_signal(name: str, **changes):
    signals = tuple(replace(s, **changes) if s.name == name else s for s in CONTRACT.signals)
    return replace(CONTRACT, signals=signals)


def reshaped(data: onnx.ModelProto, name: str, value: onnx.ValueInfoProto) -> None:
    for group in (data.graph.input, data.graph.output):
        for x in group:
            if x.name == name:
                x.CopyFrom(value)


narrow = with_signal("accel", labels=("z", "x"), low=(), high=())
renamed = replace(CONTRACT, target=replace(CONTRACT.target, name="target"))
wider = replace(
    CONTRACT,
    target=replace(CONTRACT.target, labels=("a", "b", "c"), low=(), high=()),
    gains={},
    safety=replace(CONTRACT.safety, effort=(), rest=(), damping=()),
)
DISAGREE = {
    "another input size": ({"robot": narrow}, "accel"),
    "another input": ({"inputs": ("gyro",)}, "gyro|accel"),
    "an input that the graph has not": ({"inputs": ("accel", "gyro")}, "gyro"),
    "an input that only the graph has": ({"inputs": ()}, "accel"),
    "no operator": ({"operator": ()}, "command"),
    "another memory shape": ({"memory": {"count": (2,)}}, "count"),
    "another memory rank": ({"memory": {"count": (1, 1)}}, "count"),
    "another memory name": ({"memory": {"cuont": (1,)}}, "cuont|count"),
    "no memory": ({"memory": {}}, "count"),
    "more memory": ({"memory": {"count": (1,), "more": (1,)}}, "more"),
    "another output name": ({"robot": renamed}, "target"),
    "another output size": ({"robot": wider, "default": (0.0,) * 3}, "joint_target"),
}


@pytest.mark.parametrize("what", DISAGREE)
def test_a_contract_that_disagrees_with_its_graph_is_refused_at_load(tmp_path, what):
    fields, words = DISAGREE[what]
    said = refuse(small(**fields), tmp_path / "a")
    assert "the contract says" in said
    assert any(f"{word}'" in said for word in words.split("|"))


@pytest.mark.parametrize(
    "value", [helper.make_tensor_value_info("accel", TensorProto.DOUBLE, (1, 3)), floats("accel", 2, 3), floats("accel", 3)]
)
def test_a_graph_with_another_type_or_shape_than_the_contract_is_refused_at_load(tmp_path, value):
    refuse(small(lambda d: reshaped(d, "accel", value)), tmp_path / "a")


def test_a_graph_of_any_batch_is_refused_at_load(tmp_path):
    value = helper.make_tensor_value_info("accel", TensorProto.FLOAT, ("batch", 3))
    assert "accel" in refuse(small(lambda d: reshaped(d, "accel", value)), tmp_path / "a")


def test_a_graph_whose_output_has_another_shape_than_it_says_is_refused_at_load():
    """A shape that is computed from the signals would not be known before the first tick, nor after it."""
    nodes = [
        helper.make_node("ReduceSum", ["accel", "axis"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Add", ["whole", "two"], ["size"]),
        helper.make_node("Concat", ["batch", "size"], ["shape"], axis=0),
        helper.make_node("Expand", ["default", "shape"], ["joint_target"]),
    ]
    inputs = [floats("accel", 1, 3)]
    rows = {"axis": np.array([1]), "two": np.array([3]), "batch": np.array([1]), "default": np.zeros((1, 1), np.float32)}
    data = model(nodes, inputs, [floats("joint_target", 1, 2)], [constant(k, v) for k, v in rows.items()]).SerializeToString()
    made = replace(manifest(CONTRACT, DEFAULT, data), operator=(), memory={})
    with pytest.raises(BadInput, match="computes a shape"):
        OnnxController(made, data)
