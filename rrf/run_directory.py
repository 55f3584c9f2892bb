"""The files that `rrf train` writes into the directory of a run besides its checkpoints.

RUN_DIR/
    run.json        the MLflow run, digests of everything that determines the result, the config
    result.json     the result of a finished run: its checkpoint, steps and time
                    (both with `format_version`)
    mlflow_unsent.json  records that MLflow did not get yet, see `rrf.tracking.mlflow_run`
    env_error.txt   the traceback of an environment that failed, see `rrf.runners.env_failure`
    global_step_N/  see `rrf.runners.checkpoints.checkpoint`
"""

import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rrf import atomic, formats

RUN, RESULT, ENV_ERROR = "run.json", "result.json", "env_error.txt"
UNSENT = "mlflow_unsent.json"


@dataclasses.dataclass(frozen=True)
class TrainingResult:
    """A finished training: the content of `result.json`, and what `rrf train` hands to flows."""

    checkpoint: str
    """With validations, the one with the best."""
    checkpoint_digest: str
    """Of its deployable files."""
    steps: int
    """Gradient steps, iterations, or rounds."""
    metrics: dict[str, float]
    """The last ones."""
    wall_s: float
    """Summed over all resumptions, like cpu_s."""
    cpu_s: float
    run_id: str | None = None
    """The MLflow run, if it was recorded by MLflow."""
    reused: bool = False
    """Whether the run was finished before the command began."""
    num_steps: int | None = None
    """Steps of all environments, of a state-based policy."""
    validations: list[dict[str, Any]] | None = None
    """Of rounds in simulation."""
    recorded: list[dict[str, Any]] | None = None
    """The episodes that DAgger recorded, by round."""
    video: str | None = None

    def replace(self, **changes: Any) -> "TrainingResult":
        """A copy with other values of some fields."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain data without the facts that this kind of training does not have."""
        data = dataclasses.asdict(self)
        return {key: v for key, v in data.items() if v is not None or key == "run_id"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "TrainingResult":
        """The inverse of `to_dict`. Raises ValueError if a field without default is missing."""
        fields = dataclasses.fields(cls)
        required = {field.name for field in fields if field.default is dataclasses.MISSING}
        if missing := required - data.keys():
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        return cls(**{field.name: data[field.name] for field in fields if field.name in data})

    def write(self, run_dir: Path) -> None:
        """Write `result.json` of a run."""
        write_facts(run_dir / RESULT, self.to_dict())

    @classmethod
    def read(cls, run_dir: Path) -> "TrainingResult | None":
        """The result of a run; None if it is not finished.

        Raises:
            ValueError: For a damaged file, or one that a newer rrf wrote.
        """
        path = run_dir / RESULT
        facts = read_facts(path)
        try:
            return cls.from_dict(facts) if facts else None
        except ValueError as error:
            raise damaged(path, str(error)) from error


def write_facts(path: Path, facts: Mapping) -> None:
    """Write `run.json` or `result.json` atomically."""
    atomic.write_json(path, {**formats.RUN.mark, **facts})


def read_facts(path: Path) -> dict:
    """The content of `run.json` or `result.json`; empty if the file does not exist.

    Raises:
        ValueError: For a damaged file, or one that a newer rrf wrote.
    """
    if not path.is_file():
        return {}
    try:
        data = atomic.parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(path, str(error)) from error
    if not isinstance(data, dict):
        raise damaged(path, f"it holds a {type(data).__name__}, not a mapping")
    return formats.RUN.read(data, path)


def damaged(path: Path, why: str) -> ValueError:
    """The error for a damaged file. Its message tells how to continue without the file."""
    return ValueError(
        f"{path} is damaged ({why}). The checkpoints beside it do not need it. Delete it: rm "
        f"{shlex.quote(str(path))}. Then run the same command again to resume from the newest "
        "checkpoint"
    )


def note_run(run_dir: Path, run_id: str) -> None:
    """Write the id of the MLflow run into run.json, if `rrf train` has made one there."""
    path = run_dir / RUN
    if path.is_file():
        write_facts(path, read_facts(path) | {"run_id": run_id})


def mlflow_run_of(checkpoint: str | Path) -> str | None:
    """The id of the MLflow run of a checkpoint or run directory; None if it is in none.

    Raises:
        ValueError: If the file that names the run is damaged.
    """
    path = Path(checkpoint).resolve()
    for folder in (path, *path.parents):
        if run_id := read_facts(folder / RUN).get("run_id"):
            return run_id
    return None
