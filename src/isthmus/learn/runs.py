"""A run folder: what was asked, from what it started, what came of it.

run.json              task, settings, seeds, hashes of model, space and belief, versions, state of the code
belief.json           the distribution of worlds it trains over
unit.json             how the robot differs from its model beyond that, if it is a twin; learned.safetensors with it
failures.json         worlds known to fail, if it was given some
adr.json              the ranges that automatic randomization reached
checkpoints/          the newest states, each enough to go on exactly as if never stopped
metrics.jsonl         one row per iteration
events/               the same as TensorBoard curves
blowups/              worlds whose physics failed, for replay
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from isthmus import __version__
from isthmus.core.errors import BadInput, unreadable_file
from isthmus.core.files import atomic_write, content_hash, read_bytes, read_json, write_json
from isthmus.core.from_plain import from_plain
from isthmus.data.contract import AffineFeedback
from isthmus.learn import checkpoint
from isthmus.learn.algorithms.ppo import PPOConfig
from isthmus.learn.migrate import migrate_config
from isthmus.learn.policies.actor import Actor, ActorSpec
from isthmus.learn.policies.context import Context
from isthmus.sim.physics.unit_physics import LEARNED_FORCES_FILE, MAX_FILE_BYTES, UNIT_FILE, UnitPhysics
from isthmus.sim.robot import MOTOR_FIELDS
from isthmus.tasks.catalogue import get_task
from isthmus.tasks.task import Task
from isthmus.world import Belief


@dataclass(frozen=True)
class RunConfig:
    """What a run was asked to do. Two runs with equal plans and equal machines give equal results."""

    task: str
    method: str = "ppo"
    seed: int = 0
    steps: int = 0
    """Control ticks over all worlds; 0 means until the time is up."""
    minutes: float = 0.0
    """Training time; 0 means until the steps are done."""
    settings: PPOConfig = field(default_factory=PPOConfig)
    context: Context = field(default_factory=Context)
    """What the policy knows of its world beside the last few ticks."""
    teacher: str = ""
    """Hash of the run that taught this one."""
    base: BaseController | None = None
    """What the policy corrects, if it is not alone."""
    initial_run: str = ""
    """Hash of the run that this one fine-tunes."""
    max_kl: float = 0.0
    """How far fine-tuning may move the policy, nats; 0 means any distance."""
    adr: bool = False
    """Widen the ranges of the worlds by themselves, instead of drawing from the belief."""
    revisit_fraction: float = 0.0
    """Share of episodes in worlds where the policy failed before."""
    failures: str = ""
    """Hash of the failures that were known at the start, in failures.json."""
    parent: str = ""
    """`seedless_hash` of the run that taught this one, or that it fine-tunes."""
    unit: str = ""
    """Hash of the unit whose twin it trains on."""

    def actor_spec(self, task: Task) -> ActorSpec:
        base, share = (self.base.spec(), self.base.residual_scale) if self.base else (None, 1.0)
        return ActorSpec.for_task(task, self.settings.hidden, self.settings.symmetry, self.context, base, share)


MAX_BASE_DEPTH = 4


@dataclass(frozen=True)
class BaseController:
    """A controller under a policy: a law, or the policy of another run, whose weights are in this run's checkpoints."""

    law: AffineFeedback | None = None
    config: RunConfig | None = None
    run: str = ""
    """Hash of the run that the policy comes from."""
    residual_scale: float = 0.5
    """Part of the task's reach that the correction may use."""

    def __post_init__(self) -> None:
        if (self.law is None) == (self.config is None):
            raise BadInput("a base is a law or a policy, one of the two.")
        if self.depth > MAX_BASE_DEPTH:
            raise BadInput(f"a policy may correct a policy that corrects one, {MAX_BASE_DEPTH} deep at most.")
        if not 0 < self.residual_scale <= 1:
            raise BadInput(
                f"the correction of a base may use a part of the reach above 0 and up to 1, not {self.residual_scale:g}."
            )

    @property
    def depth(self) -> int:
        """Bases below each other, this one included."""
        return 1 + (self.config.base.depth if self.config and self.config.base else 0)

    def spec(self) -> AffineFeedback | ActorSpec:
        if self.config is None:
            assert self.law is not None
            return self.law
        return self.config.actor_spec(get_task(self.config.task))


@dataclass(frozen=True)
class Run:
    """A run as found on disk."""

    folder: Path
    config: RunConfig
    task: Task
    belief: Belief
    record: dict[str, Any]

    @property
    def initial_hash(self) -> str:
        """Hash of the record with which the run began; a new budget does not make it another run."""
        return self.record.get("began_as", self.record["hash"])


def experiment_key(run: Run) -> dict[str, Any]:
    """What was asked of a run, but for seeds: equal for repetitions of one experiment.

    Of the run before it counts what was asked of that one. A base is a controller like any other: another run is another base.
    """
    plan = asdict(run.config)
    # Without a recorded parent, the very run stands for what it was asked.
    before = {name: plan["parent"] or plan[name] if plan[name] else "" for name in ("teacher", "initial_run")}
    if base := plan["base"]:
        plan["base"] = {"controller": base["run"] or content_hash(base["law"]), "residual_scale": base["residual_scale"]}
    if plan["context"]["source"] == "none":
        plan["context"] = {"source": "none"}  # what a policy does not look at cannot tell it from another
    own = {name: value for name, value in plan.items() if name not in ("seed", "parent") and (name != "unit" or value)}
    return own | before | {"belief": run.belief.hash}


def experiment_hash(run: Run) -> str:
    return content_hash(experiment_key(run))


def check_new_folder(folder: Path) -> None:
    """Raise BadInput unless a new run can go into the folder."""
    if (folder / "run.json").exists():
        raise BadInput(f"{folder} already holds a run; give --resume to go on with it, or another -o.")
    if folder.exists() and (
        not folder.is_dir() or any(p.name.split(".json")[0] not in _ALLOWED_BEFORE_START for p in folder.iterdir())
    ):
        raise BadInput(f"{folder} exists and is not an empty folder; choose another -o.")


def create(folder: Path, config: RunConfig, task: Task, belief: Belief) -> Run:
    check_new_folder(folder)
    record = {
        "kind": "run",
        "plan": asdict(config),
        "robot": task.robot.name,
        "space_hash": task.robot.space.hash,
        "model_hash": task.robot.model_hash,
        "contract_hash": task.robot.contract.hash,
        "belief_hash": belief.hash,
        "rewards": {t.name: t.weight for t in task.rewards},
        "versions": dict(versions()),
        "code": code_state(),
        "machine": {"cores": os.cpu_count(), "platform": platform.platform(), "threads": torch.get_num_threads()},
    }
    record["hash"] = content_hash(record)
    belief.save(folder / "belief.json")
    for name, content in task.robot.unit.to_files().items():
        atomic_write(folder / name, content)
    write_json(folder / "run.json", record)
    return Run(folder, config, task, belief, record)


_ALLOWED_BEFORE_START = {
    "belief",
    ".belief",
    ".run",
    "teacher",
    "failures",
    ".failures",
    "unit",
    ".unit",
    LEARNED_FORCES_FILE,
    f".{LEARNED_FORCES_FILE}",
}
"""What a run may have before it begins: its belief, known failures, halves of files, and a teacher of its own."""


def load(folder: Path) -> Run:
    """Read a run; a space, model or belief that no longer fits is an error, never an override."""
    folder = Path(folder)
    if not (folder / "run.json").exists():
        if not folder.exists():
            raise unreadable_file(folder, FileNotFoundError(), "a run")
        raise BadInput(f"{folder} is not a run: it has no run.json.")
    record = read_json(folder / "run.json")
    if record.get("hash") != content_hash({k: v for k, v in record.items() if k != "hash"}):
        raise BadInput(f"{folder / 'run.json'} was altered after it was written: its hash does not fit.")
    try:
        plan = from_plain(RunConfig, migrate_config(record.get("plan")), f"{folder / 'run.json'}: plan")
    except RecursionError:
        raise BadInput(f"{folder / 'run.json'}: the plan has too many bases on bases.") from None
    task = get_task(plan.task)
    for what, now in (("space", task.robot.space.hash), ("model", task.robot.model_hash)):
        if record.get(f"{what}_hash") != now:
            raise BadInput(
                f"{folder} was trained with another {what} of {task.robot.name} "
                f"({str(record.get(f'{what}_hash'))[:8]}, here {now[:8]}); train again or use the version it was made with."
            )
    belief = Belief.load(folder / "belief.json")
    if belief.hash != record.get("belief_hash") or belief.space.hash != task.robot.space.hash:
        raise BadInput(f"{folder / 'belief.json'} is not the belief that this run was started with.")
    return Run(folder, plan, _with_unit(folder, plan, task), belief, record)


def as_run(run: Run | Path | str) -> Run:
    """The run itself, or the one in a folder."""
    return run if isinstance(run, Run) else load(Path(run))


def _with_unit(folder: Path, config: RunConfig, task: Task) -> Task:
    """The task with the very robot that the run trains on."""
    if not config.unit:
        return task
    where = str(folder / UNIT_FILE)
    parts = {name: read_bytes(folder / name, most) for name, most in MAX_FILE_BYTES.items() if (folder / name).exists()}
    unit = UnitPhysics.from_files(parts, MOTOR_FIELDS, where)
    if unit.hash != config.unit:
        raise BadInput(f"{where} is not the unit that this run was started with.")
    return replace(task, robot=replace(task.robot, unit=unit))


def set_budget(run: Run, steps: int, minutes: float) -> Run:
    """The same run with another budget, also on disk; where it came from stays in its record."""
    plan = replace(run.config, steps=steps, minutes=minutes)
    record = {k: v for k, v in run.record.items() if k != "hash"} | {"plan": asdict(plan)}
    record["began_as"] = run.initial_hash
    record["hash"] = content_hash(record)
    write_json(run.folder / "run.json", record)
    return replace(run, config=plan, record=record)


def load_actor(run: Run) -> Actor:
    """The newest policy of a run."""
    arrays, _ = checkpoint.read(checkpoint.newest(run.folder))
    actor = Actor(run.config.actor_spec(run.task))
    load_tensors(actor, arrays, "actor.")
    return actor.eval()


def load_tensors(module: torch.nn.Module, arrays: dict[str, Any], prefix: str) -> None:
    """Load a module's tensors by name; a missing one or another shape is a BadInput."""
    own = module.state_dict()
    for name, tensor in own.items():
        array = arrays.get(prefix + name)
        if array is None or tuple(array.shape) != tuple(tensor.shape):
            shape = "missing" if array is None else f"of shape {tuple(array.shape)}"
            raise BadInput(f"the checkpoint's {prefix + name} is {shape}; this version needs {tuple(tensor.shape)}.")
        own[name] = torch.from_numpy(array.copy())
    module.load_state_dict(own)


@cache
def versions() -> Mapping[str, str]:
    """Of what a run depends on; looking them up takes a tenth of a second."""
    found = {"isthmus": __version__, "python": sys.version.split()[0]}
    for name in ("numpy", "torch", "mujoco", "safetensors"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def code_state() -> dict[str, Any]:
    """Commit of the code that ran, and whether it was changed since; empty outside a checkout."""
    here = Path(__file__).parent

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *args], capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return {}
    return {"commit": commit, "changed": bool(git("status", "--porcelain", "--", str(here)))}
