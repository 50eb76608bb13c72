"""Folders that tests read from."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).parents[1]
REPOSITORY = TESTS.parent
DOCS = REPOSITORY / "docs"
EXAMPLES = REPOSITORY / "examples"
SHARED = Path(os.environ.get("ISTHMUS_SHARED", REPOSITORY.parent / "shared"))
"""Recordings of real hardware and models of robots, which are not part of the project."""
REAL_DATA = SHARED / "realdata"
MENAGERIE = Path(os.environ.get("MENAGERIE_ROOT") or REPOSITORY.parent / "shared" / "menagerie")
