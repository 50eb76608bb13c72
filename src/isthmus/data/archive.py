"""One file of several parts that comes from a stranger: a zip archive without compression, covered by a hash.

The archive's comment is the SHA-256 of everything before it, so that no bit can change unnoticed. Sizes are bounded before
anything is read, and nothing is ever unpacked to disk.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

from isthmus.core.errors import BadInput
from isthmus.core.files import content_hash

_HASH_LENGTH = 64


def pack(parts: Mapping[str, bytes | str]) -> bytes:
    """The same parts make the same bytes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as file:
        for name, content in parts.items():
            file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)
        file.comment = b"0" * _HASH_LENGTH
    body = data.getvalue()[:-_HASH_LENGTH]
    return body + content_hash(body).encode()


def unpack(data: bytes, needed: Mapping[str, int], allowed: Mapping[str, int], what: str, where: str) -> dict[str, bytes]:
    """The inverse of `pack`: all parts that are `needed`, and those `allowed` that are there, each up to so many bytes.

    Any other bytes are a BadInput that says that `where` is not `what`.
    """
    if len(data) <= _HASH_LENGTH or content_hash(data[:-_HASH_LENGTH]).encode() != data[-_HASH_LENGTH:]:
        raise BadInput(f"{where} is not {what}, or it is damaged: its contents do not have the hash at its end.")
    limits = {**allowed, **needed}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            names = [i.filename for i in file.infolist()]
            if len(set(names)) != len(names) or not set(needed) <= set(names) <= set(limits):
                raise BadInput(
                    f"{where} is not {what}: it should hold exactly {' and '.join(needed)}, not {', '.join(names[:8])}."
                )
            for entry in file.infolist():
                limit = limits[entry.filename]
                if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > limit:
                    raise BadInput(f"{where}: {entry.filename} is compressed, or larger than {limit // 2**20} MiB.")
            return {name: file.read(name) for name in names}
    except BadInput:
        raise
    except Exception as error:  # whatever zipfile raises about broken data
        raise BadInput(f"{where} is not {what}: {error}.") from None
