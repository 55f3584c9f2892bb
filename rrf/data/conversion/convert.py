"""Raw recordings to a LeRobot v3 dataset, as `configs/datasets/NAME.yaml` says.

    for recording in source.recordings():      # in any process, in any order
        for raw in source.episodes(recording):
            part.add(encode(map(raw)))         # kept beside the dataset until it is complete
    for part in order: writer.add(its episodes)
    rename the finished directory into place

Killed at any moment it leaves the old dataset and the finished parts; run again it does what is
missing and gives the same bytes as a run that nothing disturbed, whatever the number of processes.
"""

import contextlib
import dataclasses
import inspect
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rrf import atomic
from rrf.config import did_you_mean
from rrf.data.conversion.conversion_processes import ConversionProcesses
from rrf.data.conversion.conversion_record import (
    UNSETTLED,
    Problems,
    by_kind,
    write_conversion,
)
from rrf.data.conversion.dataset_cfg import DatasetCfg
from rrf.data.conversion.encoded import EncodedEpisode
from rrf.data.conversion.faults import Faults
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.conversion.mapping import check_width, raw_keys
from rrf.data.conversion.parts import parts_of, read_facts, read_part, remove_others
from rrf.data.conversion.recordings import Counters, RecordingConverter, schema_of
from rrf.data.formats.modality import modality_of, write_modality
from rrf.data.formats.source_audit import audit
from rrf.data.language import COLUMNS
from rrf.data.raw import Annotated, Recording, Source
from rrf.data.remedies import check_pointers, naming_pointers
from rrf.data.schema import Schema

_NOT_CONTENT = (
    *("name", "robot_type", "licence", "provenance", "checks"),
    *("skip", "on_bad_episode", "max_bad_episodes"),  # said of episodes that are converted anyway
)
_CODE = Path(__file__).parents[1]  # rrf/data


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a conversion is."""

    episodes: int  # compressed so far, by earlier attempts too
    total: int
    frames_per_s: float  # of this attempt
    remaining_s: float | None  # None before there is anything to tell it from
    recording: str  # the one that is waited for
    faulty: int = 0  # episodes, of the recordings that are done

    def __str__(self) -> str:
        remaining = f", {self.remaining_s:.0f} s left" if self.remaining_s else ""
        faulty = f", {self.faulty} faulty" if self.faulty else ""
        return f"{self.frames_per_s:.0f} frames/s{remaining}{faulty}, {self.recording}"


OnProgress = Callable[[Progress], None]


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What a conversion did."""

    episodes: int
    frames: int
    reused: int  # recordings that an earlier, interrupted attempt had finished
    warnings: list[str]  # what was odd about the recordings


def convert(
    cfg: DatasetCfg,
    raw: str | Path,
    out: str | Path,
    on_progress: OnProgress = lambda progress: None,
    num_workers: int = 1,
) -> Conversion:
    """Convert all recordings under `raw` into a dataset at `out`, replacing what stood there.

    Args:
        cfg: The dataset.
        raw: Where its recordings lie on this machine.
        out: The dataset's directory. While the conversion runs, finished parts lie beside it, in
            `<out>.parts`.
        on_progress: Called after each episode, or a few times a second if there are more processes.
        num_workers: How many recordings are converted side by side; more than one starts processes.

    Raises:
        ValueError: If there are no recordings, or naming file, episode, key and frame of what is
            wrong with each episode, or if another process is converting the same dataset.
        OSError: Naming the path, if the disk is full.
        ChildProcessError: If a process dies.

        After any of them, what stood at `out` is unchanged.
    """
    raw, out = Path(raw), Path(out)
    with naming_pointers(raw):
        source = cfg.reader(raw)
        parts = _part_names(cfg, raw, source)
        known = source.keys()
    _check_keys(cfg, known)
    modality = None
    if cfg.modality is not None:
        modality = modality_of(cfg.schema(), cfg.modality.state, cfg.modality.action)
    schema, odd = schema_of(cfg, source), [*audit(source, known), *_left_out_warnings(cfg, source)]
    with parts_of(out) as folder:
        job = _Job(cfg, schema, raw, out, folder, parts, on_progress, odd)
        if schema.has_language and isinstance(source, Annotated) and source.tools:
            job.more_info["tools"] = source.tools

        def complete(root: Path) -> None:
            if modality:
                write_modality(root, modality)
            job.write_record(root)

        with job.processes(source, num_workers) as run:
            frames = write_dataset(
                out,
                schema,
                job.episodes(run),
                storage=cfg.encoding,
                robot_type=cfg.robot_type,
                provenance={
                    "name": cfg.name, "licence": cfg.licence, "provenance": cfg.provenance,
                },
                more_info=job.more_info,
                on_complete=complete,
            )  # fmt: skip
    return Conversion(job.num_episodes, frames, job.num_reused, job.warnings())


class _Job:
    """One conversion."""

    def __init__(
        self,
        cfg: DatasetCfg,
        schema: Schema,
        raw: Path,
        out: Path,
        folder: Path,
        parts: dict[str, Recording],
        on_progress: OnProgress,
        odd: list[str],
    ):
        self._cfg, self._raw, self._out, self._on_progress = cfg, raw, out, on_progress
        self._schema = schema
        self.num_episodes = 0
        self._parts = [(part, folder / name) for name, part in parts.items()]
        remove_others(folder, set(parts))
        self._missing = [pair for pair in self._parts if not pair[1].is_dir()]
        self.num_reused = len(self._parts) - len(self._missing)
        self._total = sum(part.num_episodes for part in parts.values())
        self._reused_episodes = self._total - sum(part.num_episodes for part, _ in self._missing)
        self._warnings: dict[str, tuple[int, str]] = {}
        self._noticed: dict[str, None] = dict.fromkeys(odd)
        self._continues: list[bool | None] = []  # of each episode
        self._problems: list[Problems | None] = []  # of each episode
        self._faults = Faults(cfg, self._total)
        self._splits: dict[str, tuple[int, int]] = {}
        self.more_info: dict = {}  # of info.json, complete once all episodes were given
        self._widths: dict[str, tuple[int, str]] = {}
        self._started_s = time.monotonic()

    @contextlib.contextmanager
    def processes(
        self, source: Source, num_workers: int
    ) -> Iterator["ConversionProcesses | _Here"]:
        """What converts the missing recordings."""
        num_workers = min(num_workers, len(self._missing))
        if num_workers <= 1:
            yield _Here(RecordingConverter(self._cfg, source), self._report)
            return
        with ConversionProcesses(self._cfg, self._raw, num_workers, self._report) as run:
            run.start(self._missing)
            yield run

    def episodes(self, run: "ConversionProcesses | _Here") -> Iterator[EncodedEpisode]:
        """All episodes in order, each part read as soon as it is there."""
        begin = 0  # number of the recording's first episode
        for recording, part in self._parts:
            if not part.is_dir():
                run.finish(recording, part)
            facts = read_facts(part)
            kept = self._faults.take(begin, facts["given"], facts["bad"])
            begin += facts["given"]
            self._noticed |= dict.fromkeys(facts["noticed"])
            for what, (count, first) in facts["warnings"].items():
                before, earliest = self._warnings.get(what, (0, first))
                self._warnings[what] = (before + count, earliest)
            for key, (width, episode) in facts["widths"].items():
                check_width(self._widths, key, width, episode)
            if recording.split is not None:
                start, _ = self._splits.get(recording.split, (self.num_episodes, 0))
                self._splits[recording.split] = start, self.num_episodes + sum(kept)
            self.num_episodes += sum(kept)
            self._continues += itertools.compress(facts["continues"], kept)
            self._problems += itertools.compress(facts["problems"], kept)
            if not self._faults.stop:
                yield from itertools.compress(read_part(part, self._schema), kept)
        self._faults.check()
        if len(self._splits) > 1:
            ranges = {name: f"{first}:{stop}" for name, (first, stop) in self._splits.items()}
            self.more_info["splits"] = ranges
        self._report(run.counters, "done")

    def write_record(self, root: Path) -> None:
        """Write down what was odd, with paths as in the config."""
        source, warnings = self._cfg.source, self.warnings()
        if self._raw.is_absolute():
            warnings = [text.replace(str(self._raw), source.path) for text in warnings]
        write_conversion(
            root,
            source.format,
            source.path,
            warnings,
            self._continues,
            self._problems,
            self._unsettled()
            | self._faults.record(lambda text: text.replace(str(self._raw), source.path)),
        )

    def _unsettled(self) -> dict:
        """That the layout does not say when the state was recorded, if it does not."""
        above = UNSETTLED.get(self._cfg.source.format)
        keys = [selector.key for selector in self._cfg.state.selectors()]
        return {"unsettled": keys} if above in [key.partition("/")[0] for key in keys] else {}

    def warnings(self) -> list[str]:
        noticed = by_kind(self._noticed, str(self._raw))
        return [*noticed, *self._faults.warnings()] + [
            f"{what} (in {count} episodes, first in {first})"
            for what, (count, first) in self._warnings.items()
        ]

    def _report(self, counters: Counters, recording: str) -> None:
        elapsed_s = max(time.monotonic() - self._started_s, 1e-9)
        done = self._reused_episodes + counters.episodes
        remaining_s = None
        if counters.episodes:
            remaining_s = elapsed_s / counters.episodes * (self._total - done)
        self._on_progress(
            Progress(
                done,
                self._total,
                counters.frames / elapsed_s,
                remaining_s,
                recording,
                self._faults.count,
            )
        )


class _Here:
    """Converts recordings in this process, when they are asked for."""

    def __init__(self, converter: RecordingConverter, report: Callable[[Counters, str], None]):
        self._converter, self._report = converter, report
        self.counters = Counters()

    def finish(self, recording: Recording, part: Path) -> None:
        """Convert a recording."""

        def on_episode(frames: int) -> None:
            self.counters.add(frames)
            self._report(self.counters, recording.name)

        self._report(self.counters, recording.name)
        self._converter.convert(recording, part, on_episode)


def _check_keys(cfg: DatasetCfg, known: dict[str, str]) -> None:
    for key, where in raw_keys(cfg).items():
        if key not in known:
            raise ValueError(
                f"{cfg.name}: {where}: the recordings have no key '{key}'{did_you_mean(key, known)}"
            )


def _left_out_warnings(cfg: DatasetCfg, source: Source) -> Iterator[str]:
    """What the recordings have that is easily overlooked, and the config does not name."""
    if not isinstance(source, Annotated):
        return
    for key in source.depth_keys:
        if key not in [map_cfg.key for map_cfg in cfg.maps.values()]:
            yield f"{key} is a depth map and left out; to keep it, name it under maps in the config"
    if cfg.language == "drop" and set(COLUMNS) <= source.keys().keys():
        yield "the language annotations are left out, as the config says (language: drop)"


def _part_names(cfg: DatasetCfg, raw: Path, source: Source) -> dict[str, Recording]:
    """The recordings in order, by a digest of what the part of each depends on: the content of its
    files as told by size and time, the config, and the code that reads and converts.
    """
    settings = {key: value for key, value in cfg.to_dict().items() if key not in _NOT_CONTENT}
    files = [*_CODE.rglob("*.py"), Path(inspect.getfile(type(source)))]  # it may be of a plugin
    code = sorted((str(path), atomic.sha256(path)) for path in files)
    shared = atomic.digest_of({"settings": settings, "code": code, "raw": str(raw.resolve())})
    recordings, parts = source.recordings(), {}
    check_pointers((path for recording in recordings for path in recording.paths), raw)
    for recording in recordings:
        content = [(str(path), *_size_and_time(path)) for path in recording.paths]
        parts[atomic.digest_of([shared, recording.name, content])[:32]] = recording
    assert len(parts) == len(recordings)  # they have unique names
    return parts


def _size_and_time(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns
