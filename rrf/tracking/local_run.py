"""Functions shared by the trackers that write to the run's own directory.

They keep the id and the name of a run, make names that every service accepts, and copy artifacts.
"""

import json
import re
import secrets
import shutil
from pathlib import Path

from rrf import atomic

ARTIFACTS = "artifacts"
_LONGEST_NAME = 100


def kept(run_dir: Path, tracker: str, run_name: str) -> tuple[str, str, bool]:
    """The id and the first name of this run in `tracker`, and whether it is new there.

    Id and name are kept in `<run_dir>/<tracker>_run.json`.
    """
    path = run_dir / f"{tracker}_run.json"
    if path.is_file():
        known = json.loads(path.read_text())
        return known["id"], known["name"], False
    made = secrets.token_hex(8)
    atomic.write_json(path, {"id": made, "name": run_name})
    return made, run_name, True


def project_name(experiment: str) -> str:
    """`experiment` as a name of letters, digits and `-_.+` only."""
    return re.sub(r"[^0-9A-Za-z_.+-]+", "-", experiment)[:_LONGEST_NAME] or "default"


def copy_artifact(path: str | Path, folder: str, files: Path) -> list[Path]:
    """Copy a file, or the content of a directory, to `<files>/artifacts/<folder>/`.

    The originals do not stay: checkpoints of a run are pruned and reports are rewritten.

    Returns:
        The copied files.
    """
    path, out = Path(path), files / ARTIFACTS / folder
    out.mkdir(parents=True, exist_ok=True)
    if not path.is_dir():
        shutil.copyfile(path, out / path.name)
        return [out / path.name]
    shutil.copytree(path, out, dirs_exist_ok=True)
    return [out / p.relative_to(path) for p in sorted(path.rglob("*")) if p.is_file()]
