"""The ways to train that `rrf train` knows: one class per way, listed in `TRAININGS`."""

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rrf.cli.options import check_device
from rrf.lineage import Lineage
from rrf.lookup import Lookup
from rrf.run_directory import TrainingResult

if TYPE_CHECKING:
    from rrf.runners.configs import RunnerCfg
    from rrf.runners.tracker import Tracker

TRAININGS = Lookup(
    "way to train",
    {
        "control": "rrf.cli.control_training:ControlTraining",
        "dagger": "rrf.cli.dagger_training:DAggerTraining",
        "distillation": "rrf.cli.control_training:DistillationTraining",
        "dynamics": "rrf.cli.control_training:DynamicsTraining",
        "imitation": "rrf.cli.control_training:ImitationTraining",
        "offline": "rrf.cli.control_training:OfflineTraining",
        "supervised": "rrf.cli.dataset_training:SupervisedTraining",
        "vla_rl": "rrf.cli.dataset_training:VLARLTraining",
    },
)
"""`RunnerCfg.loop` -> the class for it."""


class Training:
    """A way to train. The base class trains in a single process and makes no video."""

    can_film = False

    def __init__(self, cfg: "RunnerCfg"):
        self.cfg: Any = cfg

    def depends_on(self, parent: Path | None, parent_digest: str | None) -> tuple[Lineage, dict]:
        """The lineage of the run, without what DVC's remote knows, and digests of everything that
        decides its result.

        Args:
            parent: The checkpoint that the run starts from, if any.
            parent_digest: Digest of the parent's deployable files.
        """
        raise NotImplementedError

    def check(self) -> None:
        """Check what a training that starts or goes on needs, before anything is loaded or made.

        Raises:
            ValueError: For a device, a dataset or a simulator that is not here.
        """
        check_device(getattr(self.cfg, "device", "cpu"))

    def free(self) -> Collection[str]:
        """Fields of the config that may change when a run is resumed."""
        return ()

    @contextlib.contextmanager
    def processes(self) -> Iterator[None]:
        """Within the block, the processes that torchrun started form a group."""
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            yield
            return
        from rrf.runners import process_group

        process_group.join(self.cfg.device)
        yield
        process_group.leave()

    def runner(self, run_dir: Path, lineage: Lineage) -> Any:
        """Build the runner, which trains in the directory of the run."""
        return self.cfg.build(run_dir, lineage)

    def shown(self) -> AbstractContextManager[Callable[[Any], None]]:
        """Yield a callback that shows the runner's progress."""
        raise NotImplementedError

    def film(self, runner: Any, tracker: "Tracker") -> Path | None:
        """Make a video of the policy that was just trained; None if nothing can be drawn."""
        return None

    def film_finished(self, result: TrainingResult, run_dir: Path) -> Path | None:
        """The video of a finished run, made now if it is missing; None if nothing can be drawn."""
        return None

    def outcome(self, result: TrainingResult) -> str:
        """The outcome of a finished run in a few words."""
        raise NotImplementedError


def require_datasets(names: Iterable[str]) -> None:
    """Raise ValueError for a dataset that is not here or damaged."""
    from rrf import workspace
    from rrf.data.dataset.layout import read_info

    for name in names:
        read_info(workspace.dataset(name))


def training_of(cfg: "RunnerCfg") -> Training:
    """The way to train that a config asks for."""
    return TRAININGS.get(cfg.loop)(cfg)
