"""What trackers share that write below the run's own directory: the id they continue with, names
every service accepts, and copies of artifacts.
"""

import json
import re
import secrets
import shutil
from pathlib import Path

from rrf import atomic

ARTIFACTS = "artifacts"
_LONGEST_NAME = 100


def kept_id(run_dir: Path, tracker: str) -> str:
    """The id of this run with `tracker`: made once, kept in `<run_dir>/<tracker>_run.json`."""
    path = run_dir / f"{tracker}_run.json"
    if not path.is_file():
        atomic.write_json(path, {"id": secrets.token_hex(8)})
    return json.loads(path.read_text())["id"]


def project_name(experiment: str) -> str:
    """`experiment` in letters, digits and `-_.+`."""
    return re.sub(r"[^0-9A-Za-z_.+-]+", "-", experiment)[:_LONGEST_NAME] or "default"


def copy_artifact(path: str | Path, folder: str, files: Path) -> list[Path]:
    """Copy a file, or what a directory holds, to `<files>/artifacts/<folder>/`; the copies.

    Copies, because checkpoints of a run are pruned and reports written anew.
    """
    path, out = Path(path), files / ARTIFACTS / folder
    out.mkdir(parents=True, exist_ok=True)
    if not path.is_dir():
        shutil.copyfile(path, out / path.name)
        return [out / path.name]
    shutil.copytree(path, out, dirs_exist_ok=True)
    return [out / p.relative_to(path) for p in sorted(path.rglob("*")) if p.is_file()]
