"""A loop whose commands answer at once, for tests of what it does next."""

from __future__ import annotations

from pathlib import Path

from isthmus.pipeline.evidence import LoopSettings
from isthmus.pipeline.journal import Journal, run_calls
from isthmus.pipeline.stages import loop_stages
from isthmus.tasks.catalogue import get_task

QUIET = lambda number, step, done: None
RATE = {"rate": 0.5, "low": 0.4, "high": 0.6, "n": 64}


class Robot:
    """Answers commands as they would, without doing the work: files are made, results have their shape."""

    def __init__(self, cause: str | None = "outside", success: float = 0.1, left: float = 1.0, kept: bool = True):
        self.cause, self.success, self.left, self.kept = cause, success, left, kept
        self.asked: list[tuple[str, ...]] = []
        self.stop_at = -1
        self.ended = "done"
        self.learns = 0.95

    def __call__(self, args: tuple[str, ...]) -> tuple[int, dict]:
        if len(self.asked) == self.stop_at:
            return 3, {"error": "interrupted", "exit": 3}
        self.asked.append(args)
        code, result = getattr(self, args[0])(args)
        for i, word in enumerate(args):
            if word in ("-o", "--record", "--episodes") and code == 0:
                out = Path(args[i + 1])
                if args[0] == "train":
                    (out / "checkpoints").mkdir(parents=True, exist_ok=True)
                    (out / "checkpoints" / "1.safetensors").touch()
                else:
                    out.touch()
                    out.with_suffix(".json").touch() if args[0] == "validate" else None
        return code, result

    def train(self, args):
        return 0, {"evaluation": {"success": {**RATE, "rate": self.learns}}}

    def export(self, args):
        return 0, {}

    def run(self, args):
        if self.ended == "preflight":  # no recording
            return 1, {"status": "refused", "reason": "rate: no packets"}
        return 0, {"status": "completed", "seconds": 20.0}

    def evaluate(self, args):
        return 0, {"success": {**RATE, "rate": self.success}}

    def diagnose(self, args):
        why = {
            "headline": "So it is.",
            "cause": self.cause,
            "hypotheses": [{"cause": self.cause or "outside", "p": 0.9, "clue": None}],
        }
        return 0, {"why": None if "--no-why" in args else why, "score": {"value": 3.0}}

    def identify(self, args):
        found = {"unit": "kg", "value": 0.2, "low": 0.1, "high": 0.3, "before": [0.0, 0.1]}
        return 0, {"parameters": {"payload": found}, "error": {"after": {"fitted": 1.0, "held_out": self.left}}}

    def actuator(self, args):
        return 0, {
            "law": "stribeck",
            "candidates": [{"law": "stribeck", "held_out": 1.1, "values": {"strength": 1.0, "motor_stribeck": 0.4}}],
        }

    def residual(self, args):
        return (0, {"kept": True}) if self.kept else (1, {"kept": False})

    def excite(self, args):
        return 0, {"commands": ["x=0.1"]}

    def validate(self, args):
        return 0, {"passed": True}


def lived(folder: Path, robot: Robot, task: str = "pendulum/swingup", **settings):
    s = LoopSettings(task, "sim:somewhere", "somewhere", **settings)
    return run_calls(loop_stages(s, get_task(task), folder), Journal(folder), robot, QUIET)


def verbs(robot: Robot) -> list[str]:
    return [args[0] for args in robot.asked]
