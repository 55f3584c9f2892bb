"""Which data, code and packages stand behind a run: read from DVC's own files, git and the
validation report.

What cannot be found is named under "missing"; nothing is guessed.
"""

import hashlib
import json
import subprocess
from pathlib import Path

import yaml

from rrf import atomic, workspace

REQUIRED = ("dataset_md5", "git_revision", "validation")
LOCK_FILE = "requirements.lock"


def collect_lineage(dataset: str) -> dict:
    """The lineage of `dataset` (a name under datasets/) in this repository, as plain data.

    Keys: dataset, dataset_md5, raw_md5, git_revision, git_dirty, lock_hash, source_digest,
    validation ("passed" or "failed"), validation_digest, num_episodes, num_frames. A value that
    could not be found is None, and "missing" says what that was and which command produces it.
    """
    home = workspace.home()
    missing: list[str] = []
    lineage: dict = {"dataset": dataset}
    lineage |= _dvc(home, dataset, missing)
    lineage |= _git(home, missing)
    lineage["lock_hash"] = _file_hash(home / LOCK_FILE, missing)
    lineage["source_digest"] = source_digest()
    lineage |= _validation(home / "datasets/reports" / dataset / "validation.json", missing)
    lineage |= _size(home / "datasets" / dataset / "meta/info.json", missing)
    lineage["missing"] = missing
    return lineage


def source_digest() -> str:
    """A digest of every Python file of this package as it is on disk, committed or not."""
    root = Path(__file__).parents[1]
    files = {p.relative_to(root).as_posix(): atomic.sha256(p) for p in root.rglob("*.py")}
    return atomic.digest_of(files)


def dvc_md5(home: Path, path: str) -> str | None:
    """The MD5 DVC recorded for an output, from dvc.lock or any *.dvc file at the top; None if it
    tracks none.
    """
    for file in [home / "dvc.lock", *sorted(home.glob("*.dvc"))]:
        data = _read_yaml(file)
        stages = data.get("stages", {}).values()
        outs = [out for stage in stages for out in stage.get("outs", [])] + data.get("outs", [])
        for out in outs:
            if out.get("path") == path and "md5" in out:
                return out["md5"]
    return None


def _dvc(home: Path, dataset: str, missing: list[str]) -> dict:
    md5 = dvc_md5(home, f"datasets/{dataset}")
    raw = dvc_md5(home, "datasets/raw")
    if md5 is None:
        missing.append(f"dataset_md5: dvc.lock has no output datasets/{dataset}; run `dvc repro`")
    if raw is None:
        missing.append("raw_md5: no *.dvc file tracks datasets/raw; run `dvc add datasets/raw`")
    return {"dataset_md5": md5, "raw_md5": raw}


def _git(home: Path, missing: list[str]) -> dict:
    revision = _run_git(home, "rev-parse", "HEAD")
    if revision is None:
        missing.append(f"git_revision: {home} is no git repository with a commit; run `git commit`")
        return {"git_revision": None, "git_dirty": None}
    return {"git_revision": revision, "git_dirty": bool(_run_git(home, "status", "--porcelain"))}


def _run_git(home: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=home, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _file_hash(path: Path, missing: list[str]) -> str | None:
    if not path.is_file():
        missing.append(f"lock_hash: there is no {path.name}")
        return None
    return atomic.sha256(path)


def _validation(path: Path, missing: list[str]) -> dict:
    if not path.is_file():
        missing.append(f"validation: there is no {path}; run `dvc repro`")
        return {"validation": None, "validation_digest": None}
    content = path.read_bytes()
    passed = json.loads(content).get("passed") is True
    return {
        "validation": "passed" if passed else "failed",
        "validation_digest": hashlib.sha256(content).hexdigest(),
    }


def _size(path: Path, missing: list[str]) -> dict:
    if not path.is_file():
        missing.append(f"num_episodes, num_frames: there is no {path}; run `dvc repro`")
        return {"num_episodes": None, "num_frames": None}
    info = json.loads(path.read_text())
    return {"num_episodes": info.get("total_episodes"), "num_frames": info.get("total_frames")}


def _read_yaml(path: Path) -> dict:
    if not path.is_file():
        return {}
    try:
        return yaml.safe_load(path.read_text()) or {}
    except yaml.YAMLError as error:
        raise ValueError(
            f"{path} is not YAML ({error}); restore it with `git checkout {path.name}`"
        ) from error
