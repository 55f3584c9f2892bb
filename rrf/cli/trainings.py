"""What `rrf train` must know of each way to train: one class each, named in `TRAININGS`."""

import contextlib
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrf.registry import Registry

if TYPE_CHECKING:
    from rrf.runners.configs import RunnerCfg
    from rrf.runners.tracker import Tracker

TRAININGS = Registry(
    "way to train",
    {
        "control": "rrf.cli.control_training:ControlTraining",
        "supervised": "rrf.cli.dataset_training:SupervisedTraining",
        "vla_rl": "rrf.cli.dataset_training:VLARLTraining",
    },
)
"""`RunnerCfg.loop` -> the class that tells of it."""


class Training:
    """A way to train; the base class is one that runs in a single process and makes no film."""

    can_film = False

    def __init__(self, cfg: "RunnerCfg"):
        self.cfg: Any = cfg

    def stands_on(self, parent: Path | None, parent_digest: str | None) -> tuple[dict, dict]:
        """The lineage of the run, and digests of everything that decides its result.

        Args:
            parent: The checkpoint that it starts from, if any.
            parent_digest: Of what that one deploys.
        """
        raise NotImplementedError

    def free(self) -> Collection[str]:
        """Fields of the config in which a run that goes on may differ."""
        return ()

    def processes(self) -> AbstractContextManager[None]:
        """Within the block, the processes that train together form a group."""
        return contextlib.nullcontext()

    def runner(self, run_dir: Path, lineage: dict) -> Any:
        """What trains, in the directory of the run."""
        return self.cfg.build(run_dir, lineage)

    def shown(self) -> AbstractContextManager[Callable[[Any], None]]:
        """Yields a callback for the runner that shows its progress."""
        raise NotImplementedError

    def film(self, runner: Any, tracker: "Tracker") -> Path | None:
        """The video of a policy that has just been trained; None where nothing can be drawn."""
        return None

    def film_finished(self, result: dict, run_dir: Path) -> Path | None:
        """The video of a finished run, made now if it was not; None where nothing can be drawn."""
        return None

    def outcome(self, result: dict) -> str:
        """A finished run in a few words."""
        raise NotImplementedError


def training_of(cfg: "RunnerCfg") -> Training:
    """The way in which a config trains."""
    return TRAININGS.get(cfg.loop)(cfg)
