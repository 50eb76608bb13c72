"""What an ONNX graph from a stranger may contain, read from its bytes before any runtime sees them.

A graph is data, but some operators loop, branch, read files or call code that a library registers. A controller needs
none of them: plain arithmetic on small arrays is all. The walk below reads protobuf fields by their numbers in onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator

from isthmus.core.errors import BadInput

MAX_NODES = 20_000
ALLOWED_OPERATORS = frozenset(
    """
    Abs Acos Add And ArgMax ArgMin Asin Atan BatchNormalization Cast Ceil Clip Concat Constant Conv Cos Div Elu Equal Erf Exp
    Expand Flatten Floor GRU Gather Gelu Gemm Greater GreaterOrEqual HardSigmoid HardSwish Identity LSTM LayerNormalization
    LeakyRelu Less LessOrEqual Log MatMul Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal ReduceL2 ReduceMax
    ReduceMean ReduceMin ReduceSum ReduceSumSquare Relu Reshape Round Selu Shape Sigmoid Sign Sin Slice Softmax Softplus
    Softsign Split Sqrt Squeeze Sub Sum Swish Tan Tanh Transpose Unsqueeze Where Xor
    """.split()  # noqa: SIM905
)

SHAPE_INPUT_OPERATORS = (b"Expand", b"Reshape")
"""Operators whose second input is a shape."""


def check_graph(graph: bytes, where: str) -> None:
    """Refuse a model with anything but known operators on data of its own."""
    try:
        _check_model(graph, where)
    except (IndexError, UnicodeDecodeError):
        raise BadInput(f"{where}: the graph is not a complete ONNX model.") from None


def _check_model(model: bytes, where: str) -> None:
    top = list(_protobuf_fields(model))
    if any(number in (20, 25) for number, _ in top):
        raise BadInput(f"{where}: the graph defines functions or training of its own, which a controller may not.")
    graphs = [data for number, data in top if number == 7]
    if len(graphs) != 1:
        raise BadInput(f"{where}: the graph is not a complete ONNX model.")
    nodes, constants = [], set()
    for number, data in _protobuf_fields(graphs[0]):
        if number == 1:
            nodes.append(data)
            _check_node(data, where)
        elif number == 5:
            constants |= {value for inner, value in _protobuf_fields(data) if inner == 8}
            _check_tensor(data, where)
        elif number == 15:
            raise BadInput(f"{where}: the graph has sparse tensors, which a controller may not.")
    if not 0 < len(nodes) <= MAX_NODES:
        raise BadInput(f"{where}: the graph has {len(nodes)} operators, not 1 to {MAX_NODES}.")
    _check_shapes(nodes, constants, where)


def _check_shapes(nodes: list[bytes], constants: set[bytes], where: str) -> None:
    """Shapes must not depend on signals: then one tick tells what every tick takes."""
    parts = [list(_protobuf_fields(node)) for node in nodes]
    operators = [next((v for k, v in node if k == 4), b"") for node in parts]
    for node, operator in zip(parts, operators, strict=True):
        if operator == b"Constant":
            constants |= {value for number, value in node if number == 2}
    for node, operator in zip(parts, operators, strict=True):
        inputs = [value for number, value in node if number == 1]
        if operator in SHAPE_INPUT_OPERATORS and not set(inputs[1:2]) <= constants:
            raise BadInput(f"{where}: the graph computes a shape for {operator.decode()}, which a controller may not.")


def _check_node(node: bytes, where: str) -> None:
    for number, data in _protobuf_fields(node):
        if number == 4 and (name := data.decode()) not in ALLOWED_OPERATORS:
            raise BadInput(f"{where}: the graph uses the operator {name[:40]!r}, which a controller may not.")
        if number == 7 and data.decode() not in ("", "ai.onnx"):
            raise BadInput(f"{where}: the graph uses operators of {data.decode()[:40]!r}, which a controller may not.")
        if number == 5:
            for inner, value in _protobuf_fields(data):
                if inner in (6, 11):
                    raise BadInput(f"{where}: the graph contains graphs, which a controller may not.")
                if inner in (22, 23):
                    raise BadInput(f"{where}: the graph has sparse tensors, which a controller may not.")
                if inner in (5, 10):
                    _check_tensor(value, where)


def _check_tensor(tensor: bytes, where: str) -> None:
    if any(number in (13, 14) for number, _ in _protobuf_fields(tensor)):
        raise BadInput(f"{where}: the graph keeps weights in another file, which a controller may not.")


def _protobuf_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Field numbers and contents of one protobuf message; numbers that are not texts or messages come as b""."""
    at, end = 0, len(data)
    while at < end:
        key, at = _read_varint(data, at)
        if key >= 2**32:
            # Other readers cut a key to 32 bits and would see another field than we do.
            raise IndexError
        kind = key & 7
        if kind == 2:
            size, at = _read_varint(data, at)
            if size > end - at:
                raise IndexError
            yield key >> 3, data[at : at + size]
            at += size
            continue
        if kind == 0:
            _, at = _read_varint(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise IndexError
        yield key >> 3, b""
    if at != end:
        raise IndexError


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError
