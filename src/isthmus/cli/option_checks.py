"""Numbers that options may have."""

from __future__ import annotations

import math
from typing import Any

from isthmus.core.errors import BadInput


def check_not_negative(args: Any, *names: str) -> None:
    """Raise BadInput unless these options are finite numbers, none negative."""
    for name in names:
        if not 0 <= getattr(args, name) < math.inf:
            raise BadInput(f"--{name.replace('_', '-')} must be a finite number, not negative.")
