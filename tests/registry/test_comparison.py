"""`rrf compare`: what is different between versions, runs and evaluations, as text and one page."""

import shutil
import subprocess
from pathlib import Path

import pytest
import typer.testing
import yaml

from rrf import atomic
from rrf.cli import app
from rrf.evaluation.results import Evaluation
from rrf.lineage import DatasetLineage, Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.dvc_dataset import directory_md5
from rrf.registry import comparison, comparison_page, registration
from rrf.runners.checkpoints import checkpoint as checkpoints
from tests.registry.conftest import NAME, make_checkpoint, make_evaluation, new_run, register
from tests.runners.supervised.conftest import write_synthetic


@pytest.fixture
def rrf(home):
    """Run `rrf WORDS`; what it printed, and its error."""

    def run(*words) -> str:
        result = typer.testing.CliRunner().invoke(app, [str(word) for word in words])
        return f"{result.output}{result.exception or ''}"

    return run


def commit(home: Path, name: str) -> str:
    """Add a file, and commit it."""
    (home / name).write_text(name)
    author = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    for words in (["add", name], [*author, "commit", "-qm", name]):
        subprocess.run(["git", *words], cwd=home, check=True)
    said = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=home, check=True, capture_output=True, text=True
    )
    return said.stdout.strip()


def checkpoint(home: Path, seed: int, lineage: Lineage, config: dict) -> Path:
    path = make_checkpoint(home / f"checkpoints/{seed}", seed, lineage)
    known = checkpoints.load_config(path)
    (path / "config.yaml").write_text(yaml.safe_dump(known | config))
    facts = {k: v for k, v in atomic.read_manifest(path).items() if k != "files"}
    atomic.write_manifest(path, **facts)
    return path


@pytest.fixture
def three(home):
    """Three versions: other seeds and commits, and the third one is much worse."""
    client = store.connect()
    for seed, solved in ((1, 18), (2, 17), (3, 2)):
        lineage = Lineage(
            (DatasetLineage("demo", f"{seed:032x}.dir", num_episodes=7),),
            git_revision=commit(home, f"file-{seed}"),
        )
        checkpoint(home, seed, lineage, {"seed": seed, "experiment_name": "same"})
        run_id = new_run(client)
        for step in range(3):
            client.log_metric(run_id, "loss/total", 1.0 / (step + seed), step=step)
        folder = home / f"checkpoints/evaluation-{seed}"
        make_evaluation(folder, home / f"checkpoints/{seed}", solved)
        _register(home, run_id, seed, lineage, folder)
    return home


def _register(home: Path, run_id: str, seed: int, lineage: Lineage, evaluation: Path) -> None:
    gate = home / "configs/gates/g.yaml"
    path = home / f"checkpoints/{seed}"
    registration.register(path, NAME, run_id, lineage, evaluation, gate=gate)


def test_three_versions_side_by_side(rrf, three):
    said = rrf("compare", f"{NAME}/1", f"{NAME}/2", f"{NAME}/3", "--out", three / "page.html")
    assert "  seed: 1 | 2 | 3" in said
    assert "experiment_name" not in said  # equal in all
    assert f"  demo, version: {1:032x}.dir | {2:032x}.dir | {3:032x}.dir" in said
    assert "policy/1: 0.900 [0.699, 0.972] (18/20)" in said
    assert "policy/2 - policy/1, all tasks: -0.050" in said
    assert "0 won and 1 lost of 20, p 1, by Holm 1: they may be equal" in said
    assert "0 won and 16 lost of 20, p 3.1e-05, by Holm 9.2e-05: they differ" in said
    page = (three / "page.html").read_text()
    assert "A file-3" in page  # added between the commits
    assert 'aria-label="loss/total"' in page
    assert "policy/3 − policy/1, all tasks" in page
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/", "")  # it loads nothing


@pytest.mark.slow
def test_runs_and_evaluations_are_compared_like_versions(rrf, three):
    mine = three / ".rrf/evaluations/mine"
    make_evaluation(mine, three / "checkpoints/2", 20)
    said = rrf("compare", f"{NAME}/1", three / "checkpoints/2", three / "checkpoints/evaluation-3")
    assert "0.900 [0.699, 0.972] (18/20)" in said
    assert "(20/20)" in said
    assert "(2/20)" in said
    assert "page " in said


@pytest.mark.slow
def test_videos_of_the_same_initial_state_stand_side_by_side(three):
    folders = []
    for seed in (1, 2):
        folder = three / f".rrf/evaluations/{seed}"
        evaluation = make_evaluation(folder, three / f"checkpoints/{seed}", 18)
        (folder / "videos").mkdir()
        for index in (0, seed):
            (folder / f"videos/{index}.mp4").write_bytes(b"film %d" % seed)
        evaluation.videos = [
            {"task": "a", "index": index, "success": True, "path": f"videos/{index}.mp4"}
            for index in (0, seed)
        ]
        evaluation.save(folder / "evaluation.json")
        folders.append(folder)
    page = comparison_page.page(comparison.compare([comparison.subject(str(f)) for f in folders]))
    assert page.count("<video") == 2
    assert "a, initial state 0" in page
    evaluation = Evaluation.load(folders[0])
    evaluation.videos[0]["path"] = "../../secret.mp4"
    evaluation.save(folders[0] / "evaluation.json")
    with pytest.raises(ValueError, match="not the plain name"):
        comparison_page.page(comparison.compare([comparison.subject(str(f)) for f in folders]))


def test_episodes_of_datasets_that_are_here_are_compared(home):
    """The current version in datasets/, and an older one that was brought to .rrf/datasets/."""
    current = write_synthetic(home / "datasets/mine", 5)
    shutil.rmtree(home / "datasets/demo")
    older = write_synthetic(home / "older", 4)
    subjects = []
    for number, root in enumerate((older, current)):
        md5 = directory_md5(root) or ""
        lineage = Lineage((DatasetLineage("mine", md5, num_episodes=4 + number),))
        subjects.append(comparison.Subject(str(number), {}, lineage, []))
        if root == older:
            shutil.copytree(older, home / ".rrf/datasets" / md5)
    found = comparison.compare(subjects)
    assert found.data["mine, episodes"] == ["4", "5"]
    [sentence] = found.episodes
    assert "4 episodes are the same; 1 only in the second (4)" in sentence


@pytest.mark.slow
def test_what_cannot_be_compared_is_refused_or_said(rrf, three, run_id):
    assert "name another policy to compare with" in rrf("compare", f"{NAME}/1")
    assert "two or more different policies" in rrf("compare", f"{NAME}/1", f"{NAME}/1")
    assert "has no version 9" in rrf("compare", f"{NAME}/1", f"{NAME}/9")
    assert "neither a checkpoint" in rrf("compare", f"{NAME}/1", "nowhere")
    register(three, "other", run_id, 7, 9)
    never = make_checkpoint(three / "checkpoints/8", 8)
    said = rrf("compare", "other/1", never)
    assert "no two of them were evaluated under the same protocol" in said
