"""`rrf` in this process, in a repository of its own, and tiny runs to begin from."""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rrf import cli
from tests.runners.conftest import _one_thread  # noqa: F401
from tests.runners.supervised.conftest import dataset  # noqa: F401

TINY_PPO = (
    *("cartpole-ppo", "trackers=[]", "max_iterations=4", "num_steps_per_env=8"),
    *("env.num_envs=4", "algorithm.num_learning_epochs=2", "save_interval=2"),
)
TINY_SAC = (
    *("pendulum-sac", "trackers=[]", "max_iterations=6", "num_steps_per_env=20"),
    *("algorithm.warmup_steps=30", "algorithm.batch_size=16", "replay_size=500"),
    *("save_interval=2", "policy.actor_cfg.backbone_cfg.hidden_features=[8, 8]"),
    "policy.critic_cfg.backbone_cfg.hidden_features=[8, 8]",
)


@dataclasses.dataclass
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.strip().splitlines()

    @property
    def checkpoint(self) -> Path:
        """As flows read it: from the last line."""
        assert self.code == 0, self.err
        assert self.lines[-1].startswith("checkpoint "), self.out
        return Path(self.lines[-1].removeprefix("checkpoint "))


Rrf = Callable[..., Said]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Iterator[Path]:
    """A repository as far as training looks at one; the working directory too. Modules that lie
    in it are forgotten afterwards, as their files are removed.
    """
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in sys.modules.keys() - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{tmp_path}/"):
            del sys.modules[name]


@pytest.fixture
def rrf(home, monkeypatch, capsys) -> Rrf:
    """Runs `rrf WORDS`."""

    def run(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["rrf", *map(str, words)])
        capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        captured = capsys.readouterr()
        return Said(code, captured.out, captured.err)

    return run
