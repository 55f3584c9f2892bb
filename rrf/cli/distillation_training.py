"""The part of `rrf train` for students: the teacher is one of the run's inputs."""

from pathlib import Path

from rrf.cli.control_training import ControlTraining
from rrf.lineage import Lineage


class DistillationTraining(ControlTraining):
    """A student learns from a teacher."""

    def depends_on(self, parent: Path | None, parent_digest: str | None) -> tuple[Lineage, dict]:
        """See `Training.depends_on`. This training uses a teacher and an environment."""
        from rrf.runners.checkpoints import checkpoint
        from rrf.runners.checkpoints.deployable import deployable_digest

        self.cfg.require_teacher()
        digest = deployable_digest(checkpoint.find(self.cfg.teacher))
        lineage, inputs = super().depends_on(parent, parent_digest)
        return lineage.replace(teacher_checkpoint=digest), inputs | {"teacher": digest}
