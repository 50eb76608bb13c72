"""docs/architecture.md describes the tree as it is: every folder once, none that does not exist."""

from __future__ import annotations

import re

from support.paths import DOCS, REPOSITORY

SOURCE = REPOSITORY / "src" / "isthmus"


def folders() -> set[str]:
    """Folders of the package with files that git would keep, relative to it."""
    kept = (p.parent for p in SOURCE.rglob("*") if p.suffix in (".py", ".toml", ".c", ".js") and "__pycache__" not in p.parts)
    return {str(p.relative_to(SOURCE)) for p in kept} - {"."}


def test_every_folder_is_described_once_and_none_is_invented():
    described = re.findall(r"^\| `([\w/]+)` \|", (DOCS / "architecture.md").read_text(), re.MULTILINE)
    assert sorted(described) == sorted(folders())
