"""What commands can ask of a protocol of trials: nothing that a machine does alone."""

import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rrf.evaluation.candidate import Candidate
from rrf.evaluation.protocols.base import OnEpisode, Protocol, Resources
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.evaluation.trials.configs import TrialProtocolCfg
from rrf.extras import NotSetUpError


class TrialProtocol(Protocol[TrialProtocolCfg]):
    """See the module."""

    def evaluate(
        self,
        candidate: Candidate,
        resources: Resources,
        on_episode: OnEpisode | None = None,
        known: Sequence[EpisodeResult] = (),
    ) -> Evaluation:
        """Refuses: people make trials. See `Protocol.evaluate`."""
        raise ValueError(
            f"protocol '{self.cfg.name}' is of trials on a real robot, which people make and "
            "score; plan one: rrf trial new configs/trials/FILE.yaml"
        )

    def film(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        limit: int,
        folder: Path,
        resources: Resources,
    ) -> list[dict]:
        """None: see `Protocol.film`."""
        return []

    def probe(self, num_steps: int) -> str:
        """Refuses: see `Protocol.probe`."""
        raise NotSetUpError(f"protocol '{self.cfg.name}' is of a real robot, not of a simulator")

    @classmethod
    def play(
        cls,
        candidate: Candidate,
        video: Path | None,
        seed: int,
        options: Mapping[str, typing.Any],
        say: Callable[[str], None],
    ) -> None:
        """Refuses: see `Protocol.play`."""
        raise ValueError(f"{candidate.label} acts on a robot: rrf play POLICY --robot FILE")
