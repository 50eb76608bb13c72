"""A controller is the trained policy to the last digit, or it is not a controller; a stranger's file can do no harm."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import zipfile
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from robots_for_tests import arm, constant, floats, manifest, model, summing

from isthmus.data.contract import Signal
from isthmus.deploy import controller as controller_module
from isthmus.deploy import graph
from isthmus.deploy.controller import Controller, Manifest, pack, save, unpack
from isthmus.errors import BadInput
from isthmus.files import content_hash
from isthmus.learn import export as export_module
from isthmus.learn import runs
from isthmus.learn.actor import Actor, Shape
from isthmus.learn.export import TOLERANCE, export
from isthmus.tasks import get_task

# The trained policy --------------------------------------------------------------------------------------------------


class Exported:
    """A policy for go1 that reaches its clips, as training would leave it, and its controller."""

    def __init__(self, folder):
        task = get_task("go1/walk")
        self.run = runs.create(folder / "run", runs.Plan("go1/walk"), task, task.robot.prior)
        torch.manual_seed(0)
        self.actor = Actor(Shape.of(task)).eval()
        with torch.no_grad():
            last = [m for m in self.actor.net.modules() if isinstance(m, torch.nn.Linear)][-1]
            last.weight *= 150.0
            last.bias += torch.linspace(-0.3, 0.3, 12)
            self.actor.normalize.mean += 0.1 * torch.randn(self.actor.inputs)
            self.actor.normalize.var *= 0.5 + torch.rand(self.actor.inputs)
        self.path = folder / "a.controller"
        self.onnx = export_module.graph_bytes(self.actor)
        self.checked = self.export(self.path)

    def export(self, path, onnx_bytes: bytes | None = None, run=None, ticks: int = 60) -> dict:
        """As `isthmus export` does, but with a graph that is there already, and for a shorter time."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(export_module, "graph_bytes", lambda actor: onnx_bytes or self.onnx)
            patch.setattr(export_module, "TICKS", ticks)
            return export(run or self.run, self.actor, path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> Exported:
    return Exported(tmp_path_factory.mktemp("exported"))


def trajectory(manifest: Manifest, ticks: int, seed: int = 0, size: float = 1.0):
    rng = np.random.default_rng(seed)
    walk = {s.name: np.zeros(s.size) for s in manifest.signals}
    for _ in range(ticks):
        walk = {k: 0.9 * v + size * rng.normal(size=v.shape) for k, v in walk.items()}
        yield {k: v.astype(np.float32) for k, v in walk.items()}


@torch.no_grad()
def test_ticks_are_those_of_the_module_also_after_a_reset(exported):
    found, actor = Controller.load(exported.path), exported.actor
    memory, asked = actor.memory(1), []
    for tick, signals in enumerate(trajectory(found.manifest, 300)):
        if tick in (0, 1, 100, 101, 250):
            found.reset()
            memory = actor.memory(1)
        target, memory = actor({k: torch.tensor(v[None]) for k, v in signals.items()}, memory)
        np.testing.assert_allclose(found.tick(signals), target[0], atol=TOLERANCE)
        assert found.memory.keys() == memory.keys()
        for name, kept in memory.items():
            np.testing.assert_allclose(found.memory[name], kept, atol=TOLERANCE, err_msg=name)
        asked.append(memory["action"][0].numpy())
    # The policy of this test moves, and its clip is met.
    clip = exported.run.task.policy.clip
    assert np.ptp(asked, axis=0).min() > 0.1
    assert np.abs(asked).max() == clip


def test_what_a_tick_returns_stays_as_it_is(exported):
    found = Controller.load(exported.path)
    ticks = list(trajectory(found.manifest, 3))
    first = found.tick(ticks[0])
    kept = first.copy()
    found.tick(ticks[1])
    found.tick(ticks[2])
    assert (first == kept).all()


def test_a_reset_forgets_everything(exported):
    found = Controller.load(exported.path)
    runs_ = []
    for _ in range(2):
        found.reset()
        assert all(not kept.any() for kept in found.memory.values())
        runs_.append([found.tick(signals) for signals in trajectory(found.manifest, 20)])
    assert np.array_equal(*runs_)
    without = [found.tick(signals) for signals in trajectory(found.manifest, 20)]
    assert not np.array_equal(runs_[0], without)


def test_export_checks_a_thousand_ticks_and_every_kind_of_signal(exported):
    assert export_module.TICKS >= 1000
    assert exported.checked["checks"].keys() == {"recorded", "extreme", "boundary", "ramp"}
    assert 0.0 < max(exported.checked["checks"].values()) == exported.checked["worst"] <= TOLERANCE
    assert exported.checked["hash"] == Controller.load(exported.path).hash == content_hash(exported.path.read_bytes())


def test_the_manifest_says_what_the_run_was(exported):
    found, run = Controller.load(exported.path).manifest, exported.run
    assert found.robot == run.task.robot.contract
    assert found.default == run.task.robot.default
    assert found.operator == (run.task.command.signal,)
    assert found.run_hash == run.record["hash"]
    assert (found.model_hash, found.space_hash) == (run.task.robot.model_hash, run.task.robot.space.hash)


def initializer(data: onnx.ModelProto, ending: str) -> onnx.TensorProto:
    return next(x for x in data.graph.initializer if x.name.endswith(ending))


def shift(data: onnx.ModelProto, ending: str, change) -> None:
    found = initializer(data, ending)
    found.CopyFrom(constant(found.name, change(onnx.numpy_helper.to_array(found)).astype(np.float32)))


def node_for(data: onnx.ModelProto, output: str) -> onnx.NodeProto:
    return next(n for n in data.graph.node if output in n.output)


def lose(data: onnx.ModelProto, output: str) -> None:
    """Make the operator that gives `output` pass its first input on."""
    node = node_for(data, output)
    assert node.op_type in ("Clip", "Min")
    node.CopyFrom(helper.make_node("Identity", [node.input[0]], list(node.output)))


def older_first(data: onnx.ModelProto) -> None:
    kept = next(n for n in data.graph.node if n.op_type == "Slice" and n.input[0] == "memory.frames").output[0]
    stacked = next(n for n in data.graph.node if n.op_type == "Concat" and kept in n.input)
    stacked.input[:] = list(reversed(stacked.input))


def twice_a_tick(data: onnx.ModelProto) -> None:
    step = next(n for n in data.graph.node if n.op_type == "Add" and "memory.phase" in n.input and node_feeds(data, n, "Floor"))
    shift(data, next(i for i in step.input if i != "memory.phase"), lambda x: 2 * x)


def node_feeds(data: onnx.ModelProto, node: onnx.NodeProto, op: str) -> bool:
    return any(n.op_type == op and node.output[0] in n.input for n in data.graph.node)


SABOTAGE = {
    "another normalizer": lambda d: shift(d, "normalize.mean", lambda x: x + 1e-3),
    "a rounded scale": lambda d: shift(d, "reach", lambda x: x * 1.001),
    "another default": lambda d: shift(d, "actor.default", lambda x: x + np.eye(12)[3] * 1e-4),
    "a lost clip": lambda d: lose(d, "next.action"),
    "lost limits": lambda d: lose(d, "joint_target"),
    "the history the other way round": older_first,
    "a clock that goes twice as fast": twice_a_tick,
}


@pytest.mark.parametrize("what", SABOTAGE)
def test_export_notices_a_graph_that_differs_and_writes_nothing(exported, tmp_path, what):
    data = onnx.load_from_string(exported.onnx)
    SABOTAGE[what](data)
    with pytest.raises(BadInput, match=r"differs from the policy.*nothing written"):
        exported.export(tmp_path / "x.controller", data.SerializeToString(), ticks=5)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", ["gone", "unit", "order", "frame"])
def test_export_refuses_a_policy_whose_signals_the_robot_does_not_offer(exported, tmp_path, change):
    def changed(s: Signal) -> Signal:
        labels = (*s.labels[1:], s.labels[0]) if change == "order" else s.labels
        return replace(
            s, unit="deg/s" if change == "unit" else s.unit, labels=labels, frame="world" if change == "frame" else s.frame
        )

    task = exported.run.task
    contract = task.robot.contract
    signals = tuple(changed(s) if s.name == "gyro" else s for s in contract.signals if change != "gone" or s.name != "gyro")
    robot = replace(
        task.robot, contract=replace(contract, signals=signals), sources={s.name: task.robot.sources[s.name] for s in signals}
    )
    with pytest.raises(BadInput, match=r"'gyro'.*go1 does not measure it"):
        exported.export(tmp_path / "x.controller", run=replace(exported.run, task=replace(task, robot=robot)))
    assert not list(tmp_path.iterdir())


# On the robot --------------------------------------------------------------------------------------------------------

ON_THE_ROBOT = """
import importlib, json, pathlib, pkgutil, sys
import isthmus.deploy, isthmus.cli.main, isthmus.cli.run_
for package in ("isthmus.deploy", "isthmus.deploy.links"):
    for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{found.name}")
import numpy as np
from isthmus.deploy.controller import Controller
from isthmus.deploy.operator import Operator
c = Controller.load(sys.argv[1])
target = c.tick({s.name: np.ones(s.size) for s in c.manifest.signals})
heavy = sorted({m.split(".")[0] for m in sys.modules} & {"torch", "mujoco", "scipy", "pyarrow", "onnx", "viser", "rosbags"})
most = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"target": target.tolist(), "heavy": heavy, "kib": int(most.split()[1])}))
"""


def test_the_robot_needs_neither_torch_nor_mujoco_nor_much_memory(exported):
    done = subprocess.run([sys.executable, "-c", ON_THE_ROBOT, str(exported.path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["heavy"] == []
    assert said["kib"] < 150 * 1024
    here = Controller.load(exported.path)
    assert said["target"] == here.tick({s.name: np.ones(s.size) for s in here.manifest.signals}).tolist()


# Damaged files -------------------------------------------------------------------------------------------------------

CONTRACT, DEFAULT = arm(), np.array([0.1, -0.2])


def small(change=lambda data: None, **fields) -> bytes:
    """The file of a small controller, signed, whatever was changed in its graph or manifest."""
    data = summing(CONTRACT, DEFAULT)
    change(data)
    raw = data.SerializeToString()
    return pack(replace(manifest(CONTRACT, DEFAULT, raw), **fields), raw)


GOOD = small()


def refuse(data: bytes, path) -> str:
    path.write_bytes(data)
    with pytest.raises(BadInput) as error:
        Controller.load(path)
    assert str(path) in str(error.value)
    return str(error.value)


def test_packing_and_unpacking_give_the_same_and_always_the_same_bytes(tmp_path):
    made, raw = unpack(GOOD, "here")
    assert pack(made, raw) == GOOD
    assert save(tmp_path / "a", made, raw) == content_hash(GOOD) == Controller.load(tmp_path / "a").hash
    with zipfile.ZipFile(io.BytesIO(GOOD)) as file:
        assert file.namelist() == ["contract.json", "controller.onnx"]
        assert json.loads(file.read("contract.json"))["robot"]["robot"] == "arm"


def test_a_file_cut_anywhere_is_refused(exported):
    for length in range(len(GOOD)):
        with pytest.raises(BadInput):
            unpack(GOOD[:length], "here")
    whole = exported.path.read_bytes()
    for length in (*range(0, len(whole), len(whole) // 200), *range(len(whole) - 200, len(whole))):
        with pytest.raises(BadInput):
            unpack(whole[:length], "here")


def test_a_file_with_any_bit_flipped_is_refused(exported):
    def flipped(data: bytes, bit: int) -> bytes:
        out = bytearray(data)
        out[bit // 8] ^= 1 << bit % 8
        return bytes(out)

    for bit in range(len(GOOD) * 8):
        with pytest.raises(BadInput):
            unpack(flipped(GOOD, bit), "here")
    whole = exported.path.read_bytes()
    n, heads = (
        8 * len(whole),
        [whole.index(b"PK\3\4"), whole.rindex(b"PK\3\4"), whole.index(b"PK\1\2"), whole.rindex(b"PK\5\6")],
    )
    random = np.random.default_rng(0).integers(0, n, 200).tolist()
    for bit in (*random, *range(n - 8 * 200, n, 7), *(8 * at + i for at in heads for i in range(0, 8 * 22, 5))):
        with pytest.raises(BadInput):
            unpack(flipped(whole, bit), "here")


def signed(body: bytes) -> bytes:
    return body + content_hash(body).encode()


@given(st.binary(max_size=300))
@settings(max_examples=60)
def test_random_bytes_are_refused_signed_or_not(data):
    for candidate in (data, signed(data), signed(b"PK\3\4" + data), signed(data + GOOD[-64 - 22 : -64])):
        with pytest.raises(BadInput):
            unpack(candidate, "here")


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
@settings(max_examples=150)
def test_a_stranger_who_signs_damaged_bytes_gets_bad_input_at_worst(changes, directory):
    """In the archive, above all in its directory at the end."""
    body = bytearray(GOOD[:-64])
    start = body.index(b"PK\1\2") if directory else 0
    for at, value in changes:
        body[start + at % (len(body) - start)] = value
    with contextlib.suppress(BadInput):
        Controller(*unpack(signed(bytes(body)), "here"))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3))
@settings(max_examples=120)
def test_a_graph_with_damaged_bytes_is_a_bad_input_at_worst(changes):
    raw = bytearray(summing(CONTRACT, DEFAULT).SerializeToString())
    for at, value in changes:
        raw[at % len(raw)] = value
    with contextlib.suppress(BadInput):
        Controller(manifest(CONTRACT, DEFAULT, bytes(raw)), bytes(raw))


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
    assert Controller.load(tmp_path / "a").manifest == unpack(GOOD, "here")[0]


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
        Controller.load(path)
    size = len(entries()[1][1])
    monkeypatch.setattr(controller_module, "MAX_GRAPH", size)
    unpack(GOOD, "here")
    monkeypatch.setattr(controller_module, "MAX_GRAPH", size - 1)
    with pytest.raises(BadInput, match=r"controller\.onnx is compressed, or larger"):
        unpack(GOOD, "here")


def test_a_file_that_is_not_there_is_a_bad_input(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(BadInput, match="cannot read"):
            Controller.load(path)


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
    """A shape that is computed from the signals is not known before the first tick."""
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
    with pytest.raises(BadInput, match="first tick"):
        Controller(made, data)


# Graphs of strangers -------------------------------------------------------------------------------------------------


def identity_graph() -> onnx.GraphProto:
    return helper.make_graph([helper.make_node("Identity", ["a"], ["b"])], "inner", [floats("a", 1)], [floats("b", 1)])


def add_node(*args, **attributes):
    def change(data: onnx.ModelProto) -> None:
        data.graph.node.append(helper.make_node(*args, **attributes))

    return change


def external(tensor: onnx.TensorProto) -> onnx.TensorProto:
    onnx.external_data_helper.set_external_data(tensor, location="../../etc/passwd")
    return tensor


def sparse() -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(constant("v", np.ones(1, np.float32)), constant("i", np.array([0])), [3])


def add_function(data: onnx.ModelProto) -> None:
    inner = [helper.make_node("Identity", ["x"], ["y"])]
    data.functions.append(helper.make_function("own", "F", ["x"], ["y"], inner, [helper.make_opsetid("", 18)]))


def only_location(data: onnx.ModelProto) -> None:
    data.graph.initializer[0].data_location = TensorProto.EXTERNAL


FORBIDDEN = {
    "Loop": (add_node("Loop", ["", ""], ["z"], body=identity_graph()), "'Loop'"),
    "If": (add_node("If", ["c"], ["z"], then_branch=identity_graph(), else_branch=identity_graph()), "'If'"),
    "Scan": (add_node("Scan", ["c"], ["z"], body=identity_graph(), num_scan_inputs=1), "'Scan'"),
    "RandomNormal": (add_node("RandomNormal", [], ["z"], shape=[1]), "'RandomNormal'"),
    "ConstantOfShape": (add_node("ConstantOfShape", ["c"], ["z"]), "'ConstantOfShape'"),
    "an unknown operator": (add_node("Evil", [], ["z"]), "'Evil'"),
    "operators of a vendor": (add_node("Gelu", ["accel"], ["z"], domain="com.microsoft"), "'com.microsoft'"),
    "operators of one's own": (add_node("Add", ["accel", "accel"], ["z"], domain="own"), "'own'"),
    "a graph in an attribute": (add_node("Identity", ["accel"], ["z"], body=identity_graph()), "contains graphs"),
    "graphs in an attribute": (add_node("Identity", ["accel"], ["z"], bodies=[identity_graph()]), "contains graphs"),
    "functions": (add_function, "functions"),
    "training": (lambda d: d.training_info.add(), "training"),
    "sparse weights": (lambda d: d.graph.sparse_initializer.append(sparse()), "sparse"),
    "a sparse constant": (add_node("Constant", [], ["z"], sparse_value=sparse()), "sparse"),
    "weights in a file": (lambda d: external(d.graph.initializer[0]), "another file"),
    "weights said to be in a file": (only_location, "another file"),
    "a constant in a file": (add_node("Constant", [], ["z"], value=external(constant("v", np.ones(1)))), "another file"),
    "constants in files": (add_node("Constant", [], ["z"], v=[external(constant("v", np.ones(1)))]), "another file"),
    "no operator": (lambda d: d.graph.ClearField("node"), "0 operators"),
    "no graph": (lambda d: d.ClearField("graph"), "not a complete"),
    "too many operators": (lambda d: d.graph.node.extend([d.graph.node[0]] * graph.MAX_NODES), "operators, not 1 to"),
}  # fmt: skip


def no_runtime(monkeypatch) -> None:
    def seen(*_):
        raise AssertionError("the runtime saw the graph")

    monkeypatch.setattr(controller_module, "_session", seen)


@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_graph_that_does_more_than_arithmetic_never_reaches_the_runtime(monkeypatch, tmp_path, what):
    change, words = FORBIDDEN[what]
    data = small(change)
    no_runtime(monkeypatch)
    assert words in refuse(data, tmp_path / "a")


def test_the_small_graph_of_these_tests_does_reach_it(monkeypatch):
    no_runtime(monkeypatch)
    with pytest.raises(AssertionError, match="saw the graph"):
        Controller(*unpack(GOOD, "here"))


def varint(x: int) -> bytes:
    return bytes([x & 0x7F | 0x80]) + varint(x >> 7) if x > 0x7F else bytes([x])


def chunk(key: int, content: bytes) -> bytes:
    return varint(key) + varint(len(content)) + content


def with_a_second_name(high: int, name: bytes) -> bytes:
    """The small graph, one of its operators with another name under the same key, plus `high`."""
    data = summing(CONTRACT, DEFAULT)
    nodes = [n.SerializeToString() for n in data.graph.node]
    nodes[5] += chunk((4 << 3 | 2) + high, name)
    rest = onnx.GraphProto()
    rest.CopyFrom(data.graph)
    rest.ClearField("node")
    body = b"".join(chunk(1 << 3 | 2, n) for n in nodes) + rest.SerializeToString()
    data.ClearField("graph")
    return data.SerializeToString() + chunk(7 << 3 | 2, body)


@pytest.mark.parametrize("high", [2**32, 2**33, 3 * 2**32])
def test_an_operator_whose_name_only_the_runtime_can_read_is_refused(high):
    """The runtime's protobuf cuts a key to 32 bits, so an operator could have one name for the check and another for it."""
    with pytest.raises(BadInput, match="not a complete"):
        graph.check(with_a_second_name(high, b"Loop"), "here")
    with pytest.raises(BadInput, match="'Loop'"):
        graph.check(with_a_second_name(0, b"Loop"), "here")
    graph.check(with_a_second_name(0, b"Div"), "here")


def test_the_graph_that_is_checked_is_the_one_that_runs():
    """Bytes that also look like the runtime's own format are read as what was checked."""
    raw = chunk(15 << 3 | 2, b"\0\0ORTM") + summing(CONTRACT, DEFAULT).SerializeToString()
    assert raw[4:8] == b"ORTM"
    disguised, plain = Controller(manifest(CONTRACT, DEFAULT, raw), raw), Controller(*unpack(GOOD, "here"))
    for signals in trajectory(plain.manifest, 5):
        assert (disguised.tick(signals) == plain.tick(signals)).all()


@given(st.binary(max_size=200))
def test_bytes_that_are_no_graph_are_a_bad_input(data):
    with pytest.raises(BadInput, match="here: the graph"):
        graph.check(data, "here")


def test_a_graph_cut_anywhere_is_a_bad_input_at_worst():
    raw = summing(CONTRACT, DEFAULT).SerializeToString()
    refused = 0
    for length in range(len(raw)):
        try:
            graph.check(raw[:length], "here")
        except BadInput:
            refused += 1
    # Between two fields of the model a cut leaves a smaller model.
    assert refused >= len(raw) - 8
