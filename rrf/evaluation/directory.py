"""Evaluation directories: an evaluation is run once, and found again.

FOLDER/
    evaluation.json      what was found (`rrf.evaluation.results`)
    baseline-*.json      the same of policies that learned nothing
    verdict-GATE.json    what a gate says (`rrf.evaluation.gates.verdicts`)
    videos/              some of the episodes
    report.html          all of it for people (`rrf.evaluation.reports`)
"""

import dataclasses
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from rrf import workspace
from rrf.config import first_error
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.protocols.base import BaseProtocolCfg, OnEpisode, Resources
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import FILE_NAME, EpisodeResult, EvaluationReport

Showing = Callable[[str, int], AbstractContextManager[OnEpisode]]
"""Shows the progress of so many episodes under a title."""
Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Evaluator:
    """Evaluates policies under one protocol, unless that was done."""

    protocol: BaseProtocolCfg
    resources: Resources
    showing: Showing
    say: Say
    """Gets lines for people."""

    @functools.cached_property
    def source(self) -> str:
        """Digest of the code as it is now; someone may edit it while it evaluates."""
        return self.protocol.source()

    def folder(self, candidate: Candidate) -> Path:
        """Where the evaluation of a policy lies unless told otherwise."""
        name = f"{candidate.digest[:12]}-{self.protocol.hash[:12]}"
        return workspace.state() / "evaluations" / name

    def finished(self, candidate: Candidate, folder: Path) -> EvaluationReport | None:
        """The evaluation at `folder` if it is the one asked for; one that cannot be read is not."""
        try:
            report = EvaluationReport.load(folder)
        except (OSError, ValueError):
            return None  # `_known` says why
        found = (report.checkpoint_digest, report.protocol_hash, report.source_digest)
        wanted = (candidate.digest, self.protocol.hash, self.source)
        return report if found == wanted else None

    def evaluate(
        self, candidate: Candidate, folder: Path, num_videos: int | None = None
    ) -> EvaluationReport:
        """Run the episodes that no evaluation beside `folder` has; evaluation.json and videos.

        The result is written before the videos are made. Where nothing can be drawn there are none,
        and a warning.

        Args:
            candidate: The policy.
            folder: Where to write.
            num_videos: Episodes to film; None for as many as the protocol likes.

        Raises:
            ValueError: As `BaseProtocolCfg.evaluate`.
        """
        protocol = self.protocol
        protocol.check_kind(candidate.kind, candidate.label)
        source, known = self.source, self._known(candidate, folder.parent)
        title = f"evaluating {candidate.label}"
        with self.showing(title, len(protocol.initial_states())) as on_episode:
            report = protocol.evaluate(candidate, self.resources, on_episode, known)
        report.source_digest = source
        report.save(folder / FILE_NAME)
        limit = protocol.num_videos if num_videos is None else num_videos
        try:
            report.videos = protocol.film(candidate, report, limit, folder, self.resources)
        except (ValueError, OSError) as error:
            self.say(f"warning: no videos: {error}")
        report.save(folder / FILE_NAME)
        return report

    def baselines(self, candidate: Candidate, folder: Path) -> list[EvaluationReport]:
        """Those of the protocol's baselines that are not in `folder` yet, evaluated now."""
        reports = []
        for baseline in self.protocol.baselines(candidate):
            path = folder / f"baseline-{baseline.label}.json"
            if path.is_file():
                continue
            title = f"evaluating {baseline.label}"
            with self.showing(title, len(self.protocol.initial_states())) as on_episode:
                report = self.protocol.evaluate(baseline, self.resources, on_episode)
            report.source_digest = self.source
            report.save(path)
            reports.append(report)
        return reports

    def _known(self, candidate: Candidate, parent: Path) -> list[EpisodeResult]:
        """Episodes of the same policy, by the same code and under the same conditions, in sibling
        evaluations, e.g. of an earlier look. One that this version cannot read is named and left
        out.
        """
        wanted = (candidate.digest, self.protocol.replace(episodes_per_task=1).hash, self.source)
        found = {}
        for path in sorted(parent.glob(f"*/{FILE_NAME}")):
            try:
                report = EvaluationReport.load(path)
                theirs = parse_protocol(report.protocol).replace(episodes_per_task=1)
            except (OSError, ValueError) as error:
                problem = " ".join(first_error(error).split())
                self.say(f"not reusing the episodes of {path}: {problem}")
                continue
            if (report.checkpoint_digest, theirs.hash, report.source_digest) == wanted:
                found |= {e.initial_state: e for e in report.episodes}
        return list(found.values())
