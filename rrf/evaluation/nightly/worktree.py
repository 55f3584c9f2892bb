"""The code of one commit after another in a git worktree, and commands that run in it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rrf import atomic, processes
from rrf.evaluation.nightly.bisection import NotRunError

_LOG = "commands.log"


class Worktree:
    """A worktree of a repository.

    Args:
        repository: The repository, which is not changed.
        folder: Where the worktree is made; what lies there belongs to it.
        say: Told what begins to run, which may take minutes.
    """

    def __init__(
        self, repository: Path, folder: Path, say: Callable[[str], None] = lambda line: None
    ):
        self._repository, self.path, self._say = repository, folder, say

    def run(self, commit: str, log: Path, *words: str | Path) -> None:
        """Run `python -m rrf WORDS` with the code of a commit, in this Python environment.

        Raises:
            NotRunError: If the command fails; `log` has its output.
        """
        self._say(f"running rrf {words[0]} with the code of {commit[:8]}; its output: {log}")
        self._check_out(commit)
        command = [sys.executable, "-m", "rrf", *map(str, words)]
        environment = {"PYTHONPATH": str(self.path), "RRF_HOME": str(self.path)}
        try:
            processes.run(command, log=log, cwd=self.path, env=environment)
        except processes.CommandError as error:
            last = error.tail[-1] if error.tail else "it says nothing"
            raise NotRunError(f"it cannot be run ({last}); see {log}") from error

    def remove(self) -> None:
        """Remove it."""
        with contextlib.suppress(ValueError):  # git does not know it
            self._git("worktree", "remove", "--force", "--force", str(self.path))
        if self.path.exists():
            atomic.remove(self.path)
        self._git("worktree", "prune")

    def _check_out(self, commit: str) -> None:
        """Bring the files of a commit, and no others; a killed process may have left anything."""
        if self.path.exists():
            try:
                self._in_it("checkout", "--quiet", "--force", "--detach", commit)
                self._in_it("clean", "-ffdxq")
                return
            except ValueError:
                self.remove()
        self._git("worktree", "prune")
        self._git("worktree", "add", "--quiet", "--force", "--detach", str(self.path), commit)

    def _in_it(self, *words: str) -> None:
        if not (self.path / ".git").is_file():  # git would take the repository around it
            raise ValueError(f"{self.path} is no worktree")
        git(self.path, *words)

    def _git(self, *words: str) -> str:
        return git(self._repository, *words)


def git(repository: Path, *words: str) -> str:
    """What git prints. Raises ValueError with its last line if it fails."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    command = ["git", "-c", "core.hooksPath=/dev/null", *words]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, env=own)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ValueError(f"git {words[0]} in {repository} failed: {said}")
    return done.stdout.strip()


def commits_between(repository: Path, good: str, bad: str) -> tuple[str, list[str]]:
    """The good commit, and all after it up to the bad one, oldest first, along first parents.

    Raises:
        ValueError: If there is no such commit, or the bad one does not come after the good one.
    """
    ends = [_commit(repository, name) for name in (good, bad)]
    path = git(repository, "rev-list", "--first-parent", "--reverse", f"{ends[0]}..{ends[1]}")
    listed = path.split()
    if not listed or git(repository, "merge-base", *ends) != ends[0]:
        raise ValueError(
            f"{bad} does not come after {good} in {repository}; give an earlier --good COMMIT or a "
            "later --bad COMMIT; see: git log --oneline --graph"
        )
    return ends[0], listed


def _commit(repository: Path, name: str) -> str:
    try:
        return git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except ValueError as error:
        raise ValueError(
            f"{repository} has no commit '{name}'; see: git log --oneline; if another clone has "
            "it: git fetch"
        ) from error


def described(repository: Path, commit: str) -> str:
    """Hash, subject, author and day of a commit."""
    return git(repository, "show", "--no-patch", "--format=%h %s (%an, %as)", commit)


def changed_files(repository: Path, commit: str) -> Sequence[str]:
    """The files that a commit changed against its first parent."""
    return git(repository, "diff", "--name-only", f"{commit}^1", commit).splitlines()
