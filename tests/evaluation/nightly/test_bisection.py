"""Bisection with noise, and the test that tells a worse commit from an unlucky one."""

import math
import subprocess
from pathlib import Path

import numpy as np
import pytest

from rrf.evaluation.nightly.bisection import (
    ALPHA,
    BAD,
    GOOD,
    SKIPPED,
    NotRunError,
    e_value,
    first_bad,
)
from rrf.evaluation.nightly.trials import SpeedTrial
from rrf.evaluation.nightly.worktree import Worktree, commits_between, git
from rrf.outcome import Outcome


def test_the_evidence_is_the_mean_of_the_likelihood_ratios():
    # l = 1, w = 0: the mean of 2 q over [1/2, 1] is 3/2. l = w = 1: of 4 q (1 - q), it is 2/3.
    assert e_value(0, 0) == 1
    assert e_value(1, 0) == 1.5
    assert e_value(1, 1) == pytest.approx(2 / 3)
    q = (np.arange(100_000) + 0.5) / 200_000 + 0.5
    assert e_value(20, 5) == pytest.approx(np.mean((2 * q) ** 20 * (2 - 2 * q) ** 5), rel=1e-6)


@pytest.mark.slow
def test_whoever_looks_after_each_pair_is_misled_as_rarely_as_stated():
    rng, threshold, wrong = np.random.default_rng(0), 1 / ALPHA, 0
    for lost in rng.random((2000, 300)) < 0.5:
        losses = np.cumsum(lost)
        wrong += any(
            e_value(int(losses[k]), k + 1 - int(losses[k])) >= threshold for k in range(0, 300, 3)
        )
    assert wrong / 2000 <= ALPHA


class Coins:
    """Commits of which all from `first` on solve fewer episodes, each from the same states."""

    looks = 4

    def __init__(self, commits, first, rng, broken=(), good=0.9, bad=0.6):
        self._first, self._broken, self.asked = commits.index(first), set(broken), []
        draws = {commit: rng.random(50 * 2**self.looks) for commit in ["good", *commits]}
        self._solved = {
            c: draw < (bad if c in commits[self._first :] else good) for c, draw in draws.items()
        }

    def compare(self, commit, other, look):
        if broken := {commit, other} & self._broken:
            raise NotRunError(f"{broken} cannot be run")
        self.asked.append((commit, other, look))
        a, b = (self._solved[c][: 50 * 2**look] for c in (commit, other))
        return int((b & ~a).sum()), int((a & ~b).sum())


COMMITS = [f"c{number}" for number in range(13)]


def test_noise_misleads_a_bisection_as_rarely_as_stated():
    """Every episode of every commit is drawn anew, much noisier than evaluations are."""
    rng, wrong = np.random.default_rng(1), 0
    for _ in range(200):
        first = COMMITS[rng.integers(len(COMMITS))]
        found = first_bad("good", COMMITS, Coins(COMMITS, first, rng), lambda *_: None)
        wrong += first not in found.suspects
        assert len(found.answers) <= 1 + len(COMMITS)
    assert wrong / 200 <= ALPHA


def test_a_commit_that_cannot_be_run_is_stepped_over():
    rng, told = np.random.default_rng(2), {}
    trial = Coins(COMMITS, "c7", rng, broken=("c6", "c5"), good=1.0, bad=0.0)
    found = first_bad("good", COMMITS, trial, told.__setitem__)
    assert found.suspects == ["c5", "c6", "c7"]  # any of them may be it
    states = {commit: answer.state for commit, answer in told.items()}
    assert [states[c] for c in ("c4", "c5", "c6", "c7", "c12")] == [
        *(GOOD, SKIPPED, SKIPPED, BAD, BAD)
    ]
    assert found.answers == told
    assert "cannot be run" in told["c6"].said


def test_few_steps_find_one_of_many_commits():
    commits = [f"c{number}" for number in range(1000)]
    trial = Coins(commits, "c617", np.random.default_rng(3), good=1.0, bad=0.0)
    found = first_bad("good", commits, trial, lambda *_: None)
    assert found.suspects == ["c617"]
    assert len(found.answers) <= 1 + math.ceil(math.log2(1000))


def test_ends_that_do_not_differ_are_refused():
    trial = Coins(COMMITS, "c3", np.random.default_rng(4), good=0.9, bad=0.9)
    with pytest.raises(ValueError, match=r"c12 is not worse than the good one good: \d+ lost and"):
        first_bad("good", COMMITS, trial, lambda *_: None)


# --- the worktree


@pytest.fixture
def repository(tmp_path) -> Path:
    """A repository with a side branch; its package rrf prints its number."""
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q", "--initial-branch=main", "--template=")
    (root / ".gitignore").write_text("kept/\n")

    def commit(number: int) -> None:
        (root / "rrf").mkdir(exist_ok=True)
        (root / "rrf/__init__.py").write_text("")
        (root / "rrf/__main__.py").write_text(f"print('number', {number})\n")
        git(root, "add", "-A")
        git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", f"number {number}")

    for number in range(4):
        commit(number)
    git(root, "checkout", "-q", "-b", "side", "HEAD~2")
    commit(9)
    git(root, "checkout", "-q", "main")
    return root


def test_the_commits_between_two_are_those_after_the_first(repository):
    good, listed = commits_between(repository, "HEAD~2", "main")
    assert good == git(repository, "rev-parse", "HEAD~2")
    assert listed == [git(repository, "rev-parse", name) for name in ("HEAD~1", "HEAD")]
    for ends in (("main", "HEAD~2"), ("main", "main"), ("side", "main")):
        with pytest.raises(ValueError, match="does not come after"):
            commits_between(repository, *ends)
    with pytest.raises(ValueError, match="has no commit 'gone'; see: git log"):
        commits_between(repository, "gone", "main")


def test_a_worktree_runs_the_code_of_each_commit_whatever_was_left_in_it(repository, tmp_path):
    said, log = [], tmp_path / "log"
    tree = Worktree(repository, tmp_path / "tree", said.append)
    before = git(repository, "status", "--porcelain")
    tree.run("main", log, "eval")
    assert said == [f"running rrf eval with the code of main; its output: {log}"]
    (tree.path / "rrf/__main__.py").write_text("left by a killed process")
    (tree.path / "more").mkdir()
    tree.run("HEAD~3", log, "eval")
    assert not (tree.path / "more").exists()
    (tree.path / ".git").unlink()  # killed while git made it
    tree.run("side", log, "eval")
    assert log.read_text().split() == ["number", "3", "number", "0", "number", "9"]
    broken = repository / "rrf/__main__.py"
    broken.write_text("raise SystemExit('no simulator')")
    git(repository, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "broken")
    with pytest.raises(NotRunError, match=r"it cannot be run \(no simulator\); see .*log"):
        tree.run("main", log, "eval")
    tree.remove()
    assert not tree.path.exists()
    assert git(repository, "worktree", "list").count("\n") == 0
    assert git(repository, "status", "--porcelain") == before


def test_hooks_of_the_repository_are_not_run(repository, tmp_path):
    hooks = repository / ".git/hooks"
    hooks.mkdir()
    hook = hooks / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    subprocess.run(["git", "checkout", "-q", "side"], cwd=repository, check=True)
    assert (tmp_path / "ran").exists()
    (tmp_path / "ran").unlink()
    Worktree(repository, tmp_path / "tree").run("main", tmp_path / "log", "eval")
    assert not (tmp_path / "ran").exists()


# --- speed


class Timed(Worktree):
    """Trainings whose CPU time a test decides."""

    def __init__(self, seconds):
        self.seconds, self.ran = seconds, []

    def run(self, commit, log, *words):
        self.ran.append(commit)
        assert words[:3] == ("train", "preset", "seed=1")
        Outcome(0, None, {"cpu_s": self.seconds(commit)}).write(words[-1])


def test_trainings_are_compared_in_rounds_that_rotate_and_are_not_repeated(tmp_path):
    rng = np.random.default_rng(7)
    slow = {"good": 1.0, "c0": 1.0, "c1": 1.3, "c2": 1.3}
    tree = Timed(lambda commit: slow[commit] * rng.uniform(0.9, 1.1))
    trial = SpeedTrial(tree, tmp_path, ["preset", "seed=1"], ("good", "c2"), 16, looks=2)
    found = first_bad("good", ["c0", "c1", "c2"], trial, lambda *_: None)
    assert found.suspects == ["c1"]
    assert tree.ran[:4] == ["good", "c2", "c2", "good"]
    measured = len(tree.ran)
    first_bad("good", ["c0", "c1", "c2"], trial, lambda *_: None)
    assert len(tree.ran) == measured
    assert not list(tmp_path.glob("result-*"))
    steady = Timed(lambda commit: rng.uniform(0.9, 1.1))
    same = SpeedTrial(steady, tmp_path / "same", ["preset", "seed=1"], ("good", "c2"), 16, looks=2)
    with pytest.raises(ValueError, match="is not worse than the good one"):
        first_bad("good", ["c0", "c1", "c2"], same, lambda *_: None)
