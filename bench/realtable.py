"""What bench.realdata, bench.realsysid and bench.drives found, as the tables of docs/results/real-data.md.

python -m bench.realtable runs/realdata
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

STARTS = ("measured start", "best start")


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def models(found: dict) -> str:
    """One row per model: every signal's error from both kinds of starts."""
    signals = [(s, start) for s in found["units"] if s in found["models"]["nominal"][STARTS[0]] for start in STARTS]
    head = ["model", *(f"{s}, {found['units'][s]}, {start}" for s, start in signals), "s of the processor"]
    rows = []
    for name, row in found["models"].items():
        law = f" ({row['law']})" if "law" in row else ""
        rows.append([name + law, *(f"{row[start][s]:.3g}" for s, start in signals), f"{row['seconds']:.0f}"])
    return table(head, rows)


def numbers(found: dict) -> str:
    rows = [[name, *(f"{x:.4g}" for x in three)] for name, three in found["values"].items()]
    return table(["number", "found", "from", "to"], rows)


def tools(found: dict) -> str:
    signals = list(found["nominal"][STARTS[0]])
    line = lambda name, row, *more: [name, *(f"{row[start][s]:.3g}" for s in signals for start in STARTS), *more]  # noqa: E731
    rows = [line(name, row, str(row["replays"]), f"{row['seconds']:.1f}") for name, row in found["rows"].items()]
    head = ["tool", *(f"{s}, {start}" for s in signals for start in STARTS), "replays", "s of the processor"]
    return table(head, [line("nominal", found["nominal"], "", ""), *rows])


def laws(found: dict) -> str:
    rows = [[name, f"{row['fitted']:.3g}", f"{row['held_out']:.3g}"] for name, row in found["laws"].items()]
    return table(["law", "fitted, N·m", "held out, N·m"], rows)


def main() -> int:
    for path in sorted(Path(sys.argv[1]).glob("*.json")):
        found = json.loads(path.read_text())
        parts = [(models, "models"), (numbers, "values"), (tools, "rows"), (laws, "laws")]
        print(f"\n## {path.stem}\n")
        print("\n\n".join(make(found) for make, key in parts if key in found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
