"""Evaluation directories: an evaluation runs once, and its results are reused afterwards.

FOLDER/
    evaluation.json      the results (`rrf.evaluation.results`)
    episodes.jsonl       before that: the episodes that have ended, with which a stopped one goes on
    baseline-*.json      the results of policies that have learned nothing
    verdict-GATE.json    the verdict of a gate (`rrf.evaluation.gates.verdicts`)
    videos/              some of the episodes
    report.html          all of this for people (`rrf.evaluation.reports`)
"""

import contextlib
import dataclasses
import functools
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rrf import code_digest, ctrl_c, workspace
from rrf.atomic import digest_of, parse_json
from rrf.config import first_error
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.protocols.base import BaseProtocolCfg, OnEpisode, Protocol, Resources
from rrf.evaluation.protocols.files import parse_protocol
from rrf.evaluation.results import FILE_NAME, EpisodeResult, Evaluation
from rrf.formats import NewerFormatError

Showing = Callable[[str, int, Sequence[EpisodeResult]], AbstractContextManager[OnEpisode]]
"""Shows the progress of an evaluation, given its title, the number of episodes, and those that were
played before."""
Say = Callable[[str], None]
PARTIAL = "episodes.jsonl"
"""Name of the file with the episodes of an evaluation that has not ended."""


@contextlib.contextmanager
def _silently(title: str, total: int, known: Sequence[EpisodeResult]) -> Iterator[OnEpisode]:
    yield lambda *_: None


@dataclasses.dataclass(frozen=True)
class Evaluator:
    """Evaluates policies under one protocol and reuses episodes that were evaluated before."""

    protocol: BaseProtocolCfg
    resources: Resources
    showing: Showing = _silently
    say: Say = logging.getLogger(__name__).info
    """Called with each line of text for the user."""

    @functools.cached_property
    def _runner(self) -> Protocol:
        return self.protocol.build()

    @functools.cached_property
    def source(self) -> str:
        """Digest of the code, computed once because someone may edit the code meanwhile.

        On another kind of processor a policy's numbers round differently, as with other code.
        """
        source, processor = self.protocol.source(), self.resources.processor
        return source if processor == "cpu" else digest_of([source, processor])

    def folder(self, candidate: Candidate) -> Path:
        """The default directory for the evaluation of a policy."""
        name = f"{candidate.checkpoint_digest[:12]}-{self.protocol.hash[:12]}"
        return workspace.state() / "evaluations" / name

    def finished(self, candidate: Candidate, folder: Path) -> Evaluation | None:
        """The evaluation at `folder` if it has this policy, protocol and code; otherwise None.

        An evaluation that cannot be read counts as missing, and is replaced.

        Raises:
            NewerFormatError: If a newer rrf wrote it, which must not be replaced.
        """
        try:
            evaluation = Evaluation.load(folder)
        except NewerFormatError:
            raise
        except (OSError, ValueError):
            return None  # `_known` says why
        evaluated = (
            evaluation.checkpoint_digest,
            evaluation.protocol_hash,
            evaluation.source_digest,
        )
        wanted = (candidate.checkpoint_digest, self.protocol.hash, self.source)
        return evaluation if evaluated == wanted else None

    def evaluate(self, candidate: Candidate, folder: Path) -> Evaluation:
        """Write evaluation.json to `folder`; run only episodes not evaluated yet.

        Episodes are reused from the evaluations beside `folder`, and from one that was stopped.

        Args:
            candidate: The policy.
            folder: Where to write.

        Raises:
            ValueError: For the reasons given in `Protocol.evaluate`.
        """
        protocol = self.protocol
        protocol.check_kind(candidate.kind, candidate.label)
        folder.mkdir(parents=True, exist_ok=True)  # fails before the episodes run, not after them
        source, known = self.source, self._known(candidate, folder)
        if known:
            self.say(f"{len(known)} of the episodes were played before")
        title = f"evaluating {candidate.label}"
        with (
            self.showing(title, len(protocol.initial_states()), known) as show,
            self._keeping(candidate, folder, show, len(known)) as on_episode,
        ):
            evaluation = self._runner.evaluate(candidate, self.resources, on_episode, known)
        evaluation.source_digest, evaluation.surroundings = source, self._surroundings()
        evaluation.save(folder / FILE_NAME)
        (folder / PARTIAL).unlink(missing_ok=True)
        return evaluation

    def film(
        self, candidate: Candidate, evaluation: Evaluation, folder: Path, num_videos: int | None
    ) -> None:
        """Write videos of an evaluation to `folder`, and which they are; None for the protocol's
        number of them. If nothing can be drawn, there is a warning instead of videos.
        """
        limit = self.protocol.num_videos if num_videos is None else num_videos
        if limit:  # a simulator draws them anew, which may take as long as the episodes
            self.say(f"drawing up to {limit} videos; --num-videos 0 leaves them out")
        try:
            evaluation.videos = self._runner.film(
                candidate, evaluation, limit, folder, self.resources
            )
        except (ValueError, OSError) as error:
            self.say(f"warning: no videos: {error}")
        evaluation.save(folder / FILE_NAME)

    def baselines(self, candidate: Candidate, folder: Path) -> list[Evaluation]:
        """Evaluate the protocol's baselines that are not in `folder` yet; returns their reports."""
        reports = []
        for baseline in self._runner.baselines(candidate):
            path = folder / f"baseline-{baseline.label}.json"
            if path.is_file():
                continue
            title = f"evaluating {baseline.label}"
            with self.showing(title, len(self.protocol.initial_states()), ()) as on_episode:
                evaluation = self._runner.evaluate(baseline, self.resources, on_episode)
            evaluation.source_digest = self.source
            evaluation.surroundings = self._surroundings()
            evaluation.save(path)
            reports.append(evaluation)
        return reports

    def _surroundings(self) -> dict[str, str]:
        return code_digest.surroundings() | dict(self.protocol.versions)

    def _known(self, candidate: Candidate, folder: Path) -> list[EpisodeResult]:
        """Episodes of the protocol that need not run: of the evaluations beside `folder`, e.g. from
        an earlier look, and of those that were stopped.

        They must come from the same policy, the same code and the same conditions. An evaluation
        that cannot be read is reported and skipped.
        """
        wanted, episodes = self._conditions(candidate), {}
        for path in sorted(folder.parent.glob(f"*/{PARTIAL}")):
            episodes |= {e.initial_state: e for e in _kept(path, wanted)}
        for path in sorted(folder.parent.glob(f"*/{FILE_NAME}")):
            try:
                evaluation = Evaluation.load(path)
                facts = (evaluation.checkpoint_digest, evaluation.source_digest)
                if facts != (candidate.checkpoint_digest, self.source):
                    continue
                of = digest_of([*facts, _for_each_episode(parse_protocol(evaluation.protocol))])
            except (OSError, ValueError) as error:
                problem = " ".join(first_error(error).split())
                self.say(f"not reusing the episodes of {path}: {problem}")
                continue
            if of == wanted:
                episodes |= {e.initial_state: e for e in evaluation.episodes}
        return [episodes[state] for state in self.protocol.initial_states() if state in episodes]

    @contextlib.contextmanager
    def _keeping(
        self, candidate: Candidate, folder: Path, show: OnEpisode, num_done: int
    ) -> Iterator[OnEpisode]:
        """Yield an `on_episode` that shows an episode and writes it down; some are done already."""
        of = self._conditions(candidate)

        def says(count: int) -> str:
            kept = f"{num_done} episodes are kept; the same command plays the others"
            return f"stopped by Ctrl-C: {kept if num_done else 'no episode has ended yet'}"

        with (folder / PARTIAL).open("a", encoding="utf-8") as file, ctrl_c.answered(says):
            if file.tell():  # its last line may have been cut
                file.write("\n")

            def keep(episode: EpisodeResult, done: int, total: int) -> None:
                nonlocal num_done
                num_done = done
                file.write(json.dumps({"of": of, "episode": episode.to_dict()}) + "\n")
                file.flush()
                show(episode, done, total)

            yield keep

    def _conditions(self, candidate: Candidate) -> str:
        """Digest of all that decides what becomes of an initial state."""
        facts = (candidate.checkpoint_digest, self.source)
        return digest_of([*facts, _for_each_episode(self.protocol)])


def _kept(path: Path, of: str) -> Iterator[EpisodeResult]:
    """The episodes of these conditions in a file that a stopped evaluation has left; lines that are
    no episode, for instance cut by a kill, are passed over."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return  # it has ended meanwhile
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            kept = parse_json(line)
            if kept["of"] == of:
                yield EpisodeResult.from_dict(kept["episode"])


def _for_each_episode(protocol: BaseProtocolCfg) -> str:
    """What of a protocol its number of episodes does not change."""
    return protocol.replace(episodes_per_task=1).hash
