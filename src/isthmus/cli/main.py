"""`isthmus VERB …`: find the verb, read its options, run it, and turn errors into sentences and exit codes.

Exit codes: 0 done, 1 the answer is no, 2 bad input, 3 interrupted with everything saved.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import sys
import textwrap

from isthmus import __version__
from isthmus.core.errors import BadInput, Interrupted, unknown_name

VERBS = {
    "list": "robots, tasks and methods, and the parameters of a robot",
    "train": "train a policy over thousands of worlds",
    "evaluate": "measure a policy: success with its interval, and each reward term",
    "compare": "compare policies world by world: inside, outside, in realities, after a change",
    "probe": "how much of the world can be read from what a policy knows",
    "play": "watch a policy in the browser and change its world",
    "export": "write a policy as a controller for the robot",
    "robot": "a virtual robot in its own process, on the same link as hardware",
    "run": "run a controller on a robot, under a guard, and record it",
    "diagnose": "how far recordings are from the simulator, and why",
    "identify": "identify a robot's dynamics parameters from recordings of it, with intervals",
    "predict": "how well a twin predicts recordings",
    "drift": "has a unit changed since its twin was fitted: what, since when, what to do",
    "excite": "the experiment that tells most about a robot",
    "actuator": "find the law of its motors, from torques or from motion alone",
    "residual": "learn what no number explains: soft ground, a force",
    "validate": "put a controller through a protocol, stage by stage, with known error rates",
    "loop": "all of it: train, run, explain the gap, close it, train again, prove it; one report",
    "data": "recordings: import, export, what is in a file; the store of all episodes: add, query, label, verify, trace",
    "doctor": "what this machine can do, how fast, and what is missing",
}

RENAMED_VERBS = {"eval": "evaluate", "gap": "diagnose", "watch": "drift"}
"""Verbs of earlier versions; they still work, and say what they are called now."""

ABOUT_ARGUMENTS = ("-h", "--help", "help", "--version", "version")
EXIT_CODES_TEXT = "exit codes: 0 done, 1 the answer is no, 2 bad input, 3 interrupted with everything saved"

LAB_MODULES = (
    *("cma", "duckdb", "matplotlib", "mujoco", "mujoco_menagerie", "torch", "onnx"),
    *("safetensors", "scipy", "tensorboard", "trimesh", "viser"),
)
"""Packages that a robot's own computer does without."""


def usage(width: int = 120) -> str:
    hang = f"\n{'':11}"
    verbs = "\n".join(f"  {name:<8} {hang.join(textwrap.wrap(text, max(width - 11, 24)))}" for name, text in VERBS.items())
    return (
        f"isthmus {__version__}: from simulation to the robot and back\n\nusage: isthmus VERB [options]\n\n{verbs}\n\n"
        "example: isthmus train pendulum/swingup -o runs/first\n"
        "isthmus VERB --help tells more about a verb.\n" + "\n".join(textwrap.wrap(EXIT_CODES_TEXT, max(width, 35)))
    )


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    as_json = "--json" in argv
    try:
        code = _run_verb(argv[0], argv[1:]) if argv and argv[0] not in ABOUT_ARGUMENTS else _print_about(argv)
        try:
            sys.stdout.flush()  # here, where it is known what came out if nobody reads it
        except BrokenPipeError:
            _discard_stdout()
        return code
    except BadInput as error:
        return _fail(str(error), as_json, 2)
    except Interrupted as error:
        return _fail(str(error), as_json, 3)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in LAB_MODULES:
            raise
        return _fail(f"`isthmus {argv[0]}` needs {error.name}: pip install 'isthmus[lab]'.", as_json, 2)
    except KeyboardInterrupt:
        return _fail("interrupted.", as_json, 3)
    except BrokenPipeError:
        _discard_stdout()
        return 1  # cut off in the middle of what was printed
    except OSError as error:
        where = f"cannot use {error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}.", as_json, 2)


def _discard_stdout() -> None:
    from isthmus.cli import render

    render.discard_stdout()


def _print_about(argv: list[str]) -> int:
    version = argv[:1] in (["--version"], ["version"])
    with contextlib.suppress(BrokenPipeError):
        print(__version__ if version else usage(shutil.get_terminal_size((120, 24)).columns))
    return 0 if argv else 2


def _run_verb(verb: str, rest: list[str]) -> int:
    if verb in RENAMED_VERBS:
        print(f"isthmus: `{verb}` is called `{RENAMED_VERBS[verb]}` now.", file=sys.stderr)
        verb = RENAMED_VERBS[verb]
    if verb not in VERBS:
        raise unknown_name("verb", verb, VERBS)
    from isthmus.cli import options

    # Threads that wait for work must not spin for long: the physics runs on the same cores. Read when torch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    module = importlib.import_module(f"isthmus.cli.{verb}_")
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    about = re.sub(r"\n+example:", "\n\nexample:", module.__doc__ or "")  # a paragraph each
    args = options.parse_options(module.Args, f"isthmus {verb}", about, rest)
    return module.run(args)


def _fail(message: str, as_json: bool, code: int) -> int:
    print(f"isthmus: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": message, "exit": code}))
    return code
