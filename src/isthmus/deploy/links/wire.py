"""Packets and commands as bytes: a fixed head and a row of numbers. Bytes that are neither give None, never an exception.

packet     "IsP2" · sequence · clock · owner · mode · count · values        little-endian, float64
command    "IsC2" · sequence · clock · owner · mode · count · target
"""

from __future__ import annotations

import json
import struct
from dataclasses import asdict

import numpy as np

from isthmus.core.errors import BadInput
from isthmus.core.from_plain import from_plain
from isthmus.deploy.links.link import MODES, Command, Identity, Mode, Packet

_HEADER = struct.Struct("<4sQdQBI")
_PACKET_MAGIC, _COMMAND_MAGIC = b"IsP2", b"IsC2"
MAX_VALUES = 20_000
MAX_IDENTITY_BYTES = 2**20


def pack_packet(p: Packet) -> bytes:
    return _pack(_PACKET_MAGIC, p.sequence, p.time, p.mode, p.values, p.owner)


def unpack_packet(data: bytes) -> Packet | None:
    found = _unpack(_PACKET_MAGIC, data)
    return Packet(*found) if found else None


def pack_command(c: Command) -> bytes:
    return _pack(_COMMAND_MAGIC, c.sequence, c.time, c.mode, c.target, c.owner)


def unpack_command(data: bytes) -> Command | None:
    found = _unpack(_COMMAND_MAGIC, data)
    return Command(*found) if found else None


def _pack(magic: bytes, sequence: int, time: float, mode: Mode, row: np.ndarray, owner: int) -> bytes:
    return _HEADER.pack(magic, sequence, time, owner, MODES.index(mode), len(row)) + np.asarray(row, "<f8").tobytes()


def _unpack(magic: bytes, data: bytes) -> tuple[int, float, Mode, np.ndarray, int] | None:
    if len(data) < _HEADER.size:
        return None
    found, sequence, time, owner, mode, count = _HEADER.unpack_from(data)
    if found != magic or mode >= len(MODES) or count > MAX_VALUES or len(data) != _HEADER.size + 8 * count:
        return None
    return sequence, time, MODES[mode], np.frombuffer(data, "<f8", offset=_HEADER.size), owner


def pack_identity(identity: Identity) -> bytes:
    return json.dumps(asdict(identity)).encode()


def unpack_identity(data: bytes) -> Identity:
    where = "the robot's answer"
    if len(data) > MAX_IDENTITY_BYTES:
        raise BadInput(f"{where} is larger than {MAX_IDENTITY_BYTES // 2**20} MiB.")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        raise BadInput(f"{where} is not JSON.") from None
    return from_plain(Identity, fields, where)
