"""A stranger's graph can do no harm: nothing but arithmetic reaches the runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from isthmus.core.errors import BadInput
from isthmus.deploy import onnx_controller as controller_module
from isthmus.deploy import onnx_screening
from isthmus.deploy.onnx_controller import OnnxController, unpack_controller
from support.controllers import CONTRACT, DEFAULT, GOOD, constant, floats, manifest, refuse, small, summing, trajectory

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
    "too many operators": (lambda d: d.graph.node.extend([d.graph.node[0]] * onnx_screening.MAX_NODES), "operators, not 1 to"),
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
        OnnxController(*unpack_controller(GOOD, "here"))


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
        onnx_screening.check_graph(with_a_second_name(high, b"Loop"), "here")
    with pytest.raises(BadInput, match="'Loop'"):
        onnx_screening.check_graph(with_a_second_name(0, b"Loop"), "here")
    onnx_screening.check_graph(with_a_second_name(0, b"Div"), "here")


def test_the_graph_that_is_checked_is_the_one_that_runs():
    """Bytes that also look like the runtime's own format are read as what was checked."""
    raw = chunk(15 << 3 | 2, b"\0\0ORTM") + summing(CONTRACT, DEFAULT).SerializeToString()
    assert raw[4:8] == b"ORTM"
    disguised, plain = OnnxController(manifest(CONTRACT, DEFAULT, raw), raw), OnnxController(*unpack_controller(GOOD, "here"))
    for signals in trajectory(plain.manifest, 5):
        assert (disguised.tick(signals) == plain.tick(signals)).all()


@given(st.binary(max_size=200))
def test_bytes_that_are_no_graph_are_a_bad_input(data):
    with pytest.raises(BadInput, match="here: the graph"):
        onnx_screening.check_graph(data, "here")


def test_a_graph_cut_anywhere_is_a_bad_input_at_worst():
    raw = summing(CONTRACT, DEFAULT).SerializeToString()
    refused = 0
    for length in range(len(raw)):
        try:
            onnx_screening.check_graph(raw[:length], "here")
        except BadInput:
            refused += 1
    # Between two fields of the model a cut leaves a smaller model.
    assert refused >= len(raw) - 8
