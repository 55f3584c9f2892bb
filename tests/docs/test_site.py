"""`make docs` and the tutorials, as a reader would go through them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks, outputs

pytestmark = pytest.mark.slow

PROMISED = {
    "own-robot": [
        *("slider: 54 of 54 checks hold", "gate slider: pass", "slider version 1 is @champion"),
        "m from the target",
    ],
    "own-data": ["toy: 53 of 54 checks hold", "gate toy: pass", "toy version 1 is @champion"],
    "own-simulator": ["gate toy: pass", "reach-red.mp4"],
    "mujoco-simulator": ["pusher: 57 of 58 checks hold", "gate pusher: pass", "push-red.mp4"],
    "own-humanoid": ["walk: 64 of 64 checks hold", "checkpoint .rrf/runs/steer/global_step_2"],
    "own-algorithm": ["gate pendulum: pass", "pendulum version 1 is @champion"],
}
"""What a tutorial shows that does not depend on the processor."""


def test_the_site_is_built_without_a_warning_and_without_the_network(tmp_path):
    pytest.importorskip("mkdocs", reason="needs: uv pip install -e '.[docs]'")
    words = ("build", "--strict", "--site-dir", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", *words], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index.html", "reference/cli.html", "reference/api/rrf.envs.html"):
        text = (tmp_path / page).read_text()
        assert "RoboRenForce" in text
        loaded = re.findall(r"<(?:script|img|link)[^>]*(?:src|href)=\"?(https?://[^\s\">]+)", text)
        assert loaded == [], f"{page} loads from elsewhere"


@pytest.fixture
def clone(tmp_path) -> Path:
    """What `git clone` would give, with what is not committed yet."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("this is no git checkout")
    folder = tmp_path / "clone"
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(Path(sys.prefix))
    said(folder, "git init -q; echo .venv >> .git/info/exclude; git add .; git commit -q -m all")
    return folder


@pytest.mark.parametrize("tutorial", PROMISED)
def test_a_tutorial_does_what_it_says(tutorial, clone):
    page = DOCS / "tutorials" / f"{tutorial}.md"
    printed = said(clone, "\n".join(blocks(page, "bash")))
    lines = {without_numbers(line) for line in printed.splitlines()}
    missing = [line for line in outputs(page) if without_numbers(line) not in lines]
    assert not missing, f"{page.name} shows what is not printed: {missing}\n{printed}"
    shown = "\n".join(blocks(page, "text"))
    for line in PROMISED[tutorial]:
        assert line in shown, f"{page.name} does not promise: {line}"
        assert line in printed, printed[-3000:]
    if tutorial == "own-data":
        assert "uncommitted false" in said(clone, "rrf models lineage toy@champion")


def without_numbers(line: str) -> str:
    """The words of a line. Numbers, digests, the width of columns and verdicts, with their reason
    after a semicolon, depend on the machine.
    """
    line = re.sub(r"\b([\da-f]*\d[\d.,:a-f]*|pass|hold|fail)\b", "#", line.partition(";")[0])
    return re.sub(r"[\s─│┃]+", " ", line).strip(" #")


def said(folder: Path, script: str) -> str:
    """What a script prints, run as a reader would who has activated the environment and has no
    settings of his own.
    """
    author = {"NAME": "reader", "EMAIL": "reader@example.org"}
    identity = {f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in author.items()}
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RRF_", "MLFLOW_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {"HOME": str(folder.parent), "OMP_NUM_THREADS": "1", "PATH": path}
    environment = kept | identity | own
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout
