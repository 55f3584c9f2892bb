"""One recording to a part of a dataset: read, map, compress, keep. None waits for another."""

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

from rrf.data.conversion.conversion_record import Problems
from rrf.data.conversion.dataset_cfg import DatasetCfg
from rrf.data.conversion.encoded import EncodedEpisode, encode_episode
from rrf.data.conversion.mapping import Mapper, raw_keys
from rrf.data.conversion.parts import write_part
from rrf.data.language import COLUMNS
from rrf.data.memory import no_room
from rrf.data.raw import FailedEpisodeError, OneByOne, RawEpisode, Recording, Source
from rrf.data.schema import Schema

MAX_BAD = 100  # faulty episodes of one recording that are looked for
BAD_FROM_THE_START = 20  # so many and no good one: the config is wrong, not they


@typing.runtime_checkable
class Noticing(typing.Protocol):
    """A source that collects what is odd about its recordings."""

    @property
    def warnings(self) -> list[str]: ...


@dataclasses.dataclass
class Counters:
    """What has been compressed so far."""

    episodes: int = 0
    frames: int = 0

    def add(self, frames: int) -> None:
        """Count an episode."""
        self.episodes += 1
        self.frames += frames


def schema_of(cfg: DatasetCfg, source: Source) -> Schema:
    """What the converted dataset holds: what the config names, and language annotations if the
    recordings have any.
    """
    is_annotated = cfg.language == "keep" and set(COLUMNS) <= source.keys().keys()
    if is_annotated and cfg.subtask is not None:
        raise ValueError(
            f"{cfg.name}: the recordings have language annotations already; write language: drop "
            "to make them from subtask"
        )
    is_annotated = is_annotated or cfg.subtask is not None
    return dataclasses.replace(cfg.schema(), has_language=is_annotated)


class RecordingConverter:
    """Converts recordings of one source, one after the other."""

    def __init__(self, cfg: DatasetCfg, source: Source):
        self._cfg, self._source = cfg, source
        self._schema, self._keys = schema_of(cfg, source), list(raw_keys(cfg))
        self._keys += COLUMNS if self._schema.has_language and cfg.subtask is None else ()
        self._at_first = self._noticed()  # about the source as a whole

    def convert(self, recording: Recording, part: Path, on_episode: Callable[[int], None]) -> None:
        """Write the part of a recording.

        Args:
            recording: One of the source's.
            part: The part's directory.
            on_episode: Called with the number of frames after each episode.

        Episodes that are faulty are noted in the part's facts.

        Raises:
            ValueError: Naming file, episode, key and frame of the first thing that is wrong, if
                that is wrong with all episodes, with very many, or with the recording as a whole.
        """
        mapper, counters, before = Mapper(self._cfg), Counters(), self._noticed()
        continues: list[bool | None] = []
        problems: list[Problems | None] = []
        bad: list[tuple[int, str]] = []  # position in the recording, what is wrong
        given: list[int] = []  # episodes without those that failed

        def episodes() -> Iterator[EncodedEpisode]:
            num_failed = position = 0
            for read in self._readers(recording):
                seen = dict(mapper.widths), dict(mapper.warnings)
                try:
                    raw = read()
                    episode = encode_episode(mapper(raw), self._schema, self._cfg.encoding)
                except FailedEpisodeError:
                    num_failed += 1
                    on_episode(0)
                    continue
                except ValueError as error:
                    bad.append((position, str(error)))
                    is_hopeless = len(bad) == position + 1 == BAD_FROM_THE_START
                    if is_hopeless or len(bad) > MAX_BAD:
                        raise ValueError(bad[0][1]) from error
                    mapper.widths, mapper.warnings = seen
                    position += 1
                    on_episode(0)
                    continue
                position += 1
                counters.add(len(episode))
                continues.append(raw.continues)
                problems.append(self._open_problems(raw))
                yield episode
                on_episode(len(episode))
            given.append(position)
            num_read = position + num_failed
            if num_read != recording.num_episodes:
                raise ValueError(
                    f"{recording.paths[0]} ({recording.name}) gave {num_read} episodes, "
                    f"{recording.num_episodes} were listed; if the file was changed meanwhile, "
                    "convert again"
                )

        def facts() -> dict:
            return {
                "episodes": counters.episodes,
                "warnings": mapper.warnings,
                "noticed": self._at_first + [w for w in self._noticed() if w not in before],
                "widths": mapper.widths,
                "continues": continues,
                "problems": problems,
                "bad": bad,
                "given": given[0],
            }

        try:
            write_part(part, self._schema, episodes(), facts)
        except MemoryError as error:
            raise no_room(f"{recording.paths[0]} ({recording.name})", error) from error

    def _readers(self, recording: Recording) -> Iterator[Callable[[], RawEpisode]]:
        """What reads each episode."""
        if isinstance(self._source, OneByOne) and recording.num_episodes > 1:
            yield from self._source.readers(recording, self._keys)
            return
        episodes = self._source.episodes(recording, self._keys)
        if recording.num_episodes == 1:  # what is wrong with the recording is with the episode
            yield functools.partial(_first, episodes, recording)
        for raw in episodes:
            yield functools.partial(_given, raw)

    def _open_problems(self, raw: RawEpisode) -> Problems | None:
        """What the recording contradicts; resampling has dealt with uneven time stamps."""
        is_timed = self._cfg.resample is not None and self._cfg.resample.times is not None
        if raw.problems is None or not is_timed:
            return raw.problems
        return [(check, value) for check, value in raw.problems if check != "timestamps"]

    def _noticed(self) -> list[str]:
        return list(self._source.warnings) if isinstance(self._source, Noticing) else []


def _first(episodes: Iterator[RawEpisode], recording: Recording) -> RawEpisode:
    raw = next(episodes, None)
    if raw is None:
        raise ValueError(f"{recording.paths[0]} ({recording.name}) has no episode")
    return raw


def _given(raw: RawEpisode) -> RawEpisode:
    return raw
