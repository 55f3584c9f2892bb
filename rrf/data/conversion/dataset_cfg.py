"""What `configs/datasets/NAME.yaml` says: where raw recordings lie, what their keys mean, and when
a dataset is good.

datasets/raw/...            recordings as they came           (datasets.dvc)
datasets/converted/NAME     the same as LeRobot v3             (stage convert)
datasets/reports/NAME       what validation found              (stage validate)
datasets/NAME               converted + norm_stats.json        (stage publish, after a pass)
"""

import dataclasses
import re
import typing
from pathlib import Path

from rrf import workspace
from rrf.config import Cfg, configclass, did_you_mean, first_error, read_yaml
from rrf.data.conversion.checks_cfg import ChecksCfg
from rrf.data.conversion.edit_cfg import EditCfg, Episodes, numbers
from rrf.data.conversion.resample_cfg import ResampleCfg
from rrf.data.conversion.vector_cfg import VectorCfg
from rrf.data.encoding import Codec, Encoding
from rrf.data.formats.source_path import local_path
from rrf.data.formats.sources import SOURCES
from rrf.data.raw import SeveralRates, Source, Timed
from rrf.data.schema import PixelMap, Schema

_TAKEN_NAMES = ("raw", "converted", "reports")  # other directories in datasets/


@configclass
class SourceCfg(Cfg):
    """Where raw recordings lie."""

    format: str = "robomimic"
    """File format of the recordings, one of rrf/data/formats/sources.py."""
    path: str
    """Their directory: relative to the workspace, absolute, s3://bucket/prefix, or
    hf://OWNER/NAME@COMMIT.
    """
    pattern: str | None = None
    """Which files in it, for formats of one file per recording; read in alphabetical order, those
    of aloha and robotwin in the order of the numbers in their names.
    """
    fps: float | None = None
    """Frames per second of the recordings, where the format does not say, says it wrong, or says
    two different things: this is what counts then.
    """
    options: dict[str, typing.Any] = {}
    """What only this format asks for."""

    def __post_init__(self):
        if self.format not in SOURCES:
            raise ValueError(f"no format '{self.format}'{did_you_mean(self.format, SOURCES)}")
        if self.fps is not None and self.fps <= 0:
            raise ValueError(f"fps is {self.fps}, must be positive")

    def reader(self, path: Path) -> Source:
        """The reader of these recordings, which lie at `path` on this machine."""
        pattern = {"pattern": self.pattern} if self.pattern is not None else {}
        source: Source = SOURCES.get(self.format)(path, pattern | self.options)
        if self.fps is not None and isinstance(source, Timed):
            source.set_fps(self.fps)
        return source


@configclass
class MapCfg(Cfg):
    """Images that are not RGB: depth, a mask, infrared. They are kept exactly as recorded."""

    key: str
    """Raw key."""
    dtype: typing.Literal["bool", "uint8", "uint16", "int16", "int32", "float32", "float64"]
    """Type of the numbers, as recorded."""
    size: list[int]
    """[height, width] as recorded, px."""
    unit: str
    """Unit of the numbers, such as mm, m or class."""

    def __post_init__(self):
        if len(self.size) != 2 or min(self.size) <= 0:
            raise ValueError(f"size is {self.size}, must be [height, width]")


@configclass
class InstructionCfg(Cfg):
    """Where the language instruction comes from, if not from where the format keeps it."""

    key: str | None = None
    """Raw key that holds it."""
    text: str | None = None
    """The instruction of all episodes; with a key, of those where the key's text is empty."""

    def __post_init__(self):
        if self.key is None and self.text is None:
            raise ValueError("instruction needs a key, a text, or both")


@configclass
class ModalityCfg(Cfg):
    """The parts of state and action in GR00T's meta/modality.json."""

    state: dict[str, list[int]] | None = None
    """Part -> [start, end); by default neighbours named alike up to the last "_"."""
    action: dict[str, list[int]] | None = None
    """The same for the action."""


@configclass
class DatasetCfg(Cfg):
    """One dataset, from raw recordings to the published form."""

    name: str
    """Name of the dataset; the file is configs/datasets/NAME.yaml."""
    source: SourceCfg
    """Where the raw recordings lie."""
    fps: float
    """Frames per second of the dataset, to at most three decimals: what the recordings say, or a
    whole fraction of it; with `resample` any."""
    resample: ResampleCfg | None = None
    """Make frames of this rate out of recordings of any; none: each is a recorded one."""
    storage: typing.Literal["image", "video"] = "image"
    """How images are stored: inside parquet, or as video."""
    jpeg: typing.Literal["keep", "transcode"] = "keep"
    """Storage image: recorded JPEG or PNG files of the right size are kept byte for byte, or
    everything becomes lossless PNG.
    """
    codec: Codec = "h264"
    """Storage video: h264, or the smaller and slower av1."""
    keyframe_interval_s: float | None = None
    """Storage video: longest time between keyframes, s, at most 2; a short one by default."""
    image_size: list[int] | None = None
    """[height, width] of every camera, px; images of another size are resized, by area."""
    cameras: dict[str, str] = {}
    """Camera name -> raw key; none for a dataset of states alone."""
    maps: dict[str, MapCfg] = {}
    """Name -> images that are not RGB, such as depth; they get no pixel of another size."""
    state: VectorCfg
    """Proprioception."""
    action: VectorCfg
    """The command executed from this frame to the next."""
    extra: dict[str, VectorCfg] = {}
    """Name -> other numbers of each frame, such as forces; they are kept, and no policy sees them.
    """
    subtask: str | None = None
    """Raw key of a text per frame, kept as language annotations of the style subtask."""
    after_action: list[str] = []
    """What was recorded after the action of its frame and not before it: state, or names of
    cameras, maps and extra numbers. It is taken from the frame before, and the first frame of an
    episode is left out."""
    instruction: InstructionCfg | None = None
    """Where the instruction comes from, if not from where the format keeps it."""
    reward: str | None = None
    """Raw key of the reward, none if not recorded."""
    success: str | None = None
    """Raw key of the success flag, none if not recorded; "last" if every episode ends in success.
    """
    terminated: str | None = None
    """Raw key of the flag that the task itself ended with the action, not by its time limit; none
    if not recorded. Offline reinforcement learning needs it."""
    language: typing.Literal["keep", "drop"] = "keep"
    """Keep the language annotations of LeRobot recordings (subtasks, plans, questions), or leave
    them out."""
    modality: ModalityCfg | None = None
    """Write GR00T's meta/modality.json too; {} takes the parts from the dimensions' names."""
    skip: Episodes = []
    """Episodes to leave out: their numbers, counted through all recordings as `rrf data view --raw`
    does, and ranges "10-14"."""
    on_bad_episode: typing.Literal["stop", "skip"] = "stop"
    """What an episode that is damaged, or does not fit the config, does: stop the conversion once
    all are found, or be left out, which record, report and card say."""
    max_bad_episodes: int = 10
    """With on_bad_episode: skip, more of them stop the conversion."""
    robot_type: str = "unknown"
    """The robot."""
    licence: str
    """SPDX identifier of the recordings' licence."""
    provenance: str
    """How the recordings came to be, in a sentence or two."""
    checks: ChecksCfg = ChecksCfg()
    """How strict validation is."""

    def __post_init__(self):
        if self.fps <= 0 or round(self.fps, 3) != self.fps:
            raise ValueError(f"fps is {self.fps}, must be positive, with at most three decimals")
        self._check_resampling()
        numbers(self.skip)
        if self.max_bad_episodes < 0:
            raise ValueError(f"max_bad_episodes is {self.max_bad_episodes}, allowed: 0 or more")
        if self.image_size is not None and (len(self.image_size) != 2 or min(self.image_size) <= 0):
            raise ValueError(f"image_size is {self.image_size}, must be [height, width]")
        if self.cameras and self.image_size is None:
            raise ValueError("cameras need an image_size: [height, width]")
        if self.keyframe_interval_s is not None and not 0 < self.keyframe_interval_s <= 2:
            raise ValueError(
                f"keyframe_interval_s is {self.keyframe_interval_s}, must be above 0 and at most 2"
            )
        for name in self.after_action:
            known = ("state", *self.cameras, *self.maps, *self.extra)
            if name not in known:
                raise ValueError(f"after_action: no '{name}'{did_you_mean(name, known)}")
        for where, vector in (("state", self.state), *self.extra.items()):
            if vector.summed() or any(conversion.reference for conversion in vector.convert):
                raise ValueError(f"{where}: only actions can be deltas")
        for name in self.extra:
            if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
                raise ValueError(f"extra: '{name}' must be of letters, digits, _ and -")
        for name in [name for conversion in self.action.convert for name in conversion.reference]:
            if name not in self.state.names:
                raise ValueError(
                    f"action.convert: the state has no dimension '{name}'"
                    f"{did_you_mean(name, self.state.names)}"
                )

    def _check_resampling(self) -> None:
        if self.resample is None:
            return
        if self.after_action:
            raise ValueError(
                "after_action and resample exclude each other: by their time stamps, rows are "
                "put where they belong"
            )
        vectors = (self.state, self.action, *self.extra.values())
        known = [name for vector in vectors for name in vector.names]
        for name in self.resample.nearest:
            if name not in known:
                raise ValueError(f"resample.nearest: no '{name}'{did_you_mean(name, known)}")

    @property
    def encoding(self) -> Encoding:
        """How images are compressed."""
        return Encoding(self.storage, self.codec, self.keyframe_interval_s, self.jpeg == "keep")

    def reader(self, path: Path) -> Source:
        """The reader of the recordings, which lie at `path` on this machine.

        Raises ValueError if they have several rates, which their format cannot have.
        """
        source = self.source.reader(path)
        if self.resample is not None and self.resample.times_of:
            if not isinstance(source, SeveralRates):
                raise ValueError(
                    f"resample.times_of: all arrays of the format {self.source.format} have the "
                    "same rows; leave it out"
                )
            source.allow_rates()
        return source

    def schema(self) -> Schema:
        """What every episode of this dataset holds."""
        height, width = self.image_size if self.image_size and self.cameras else (0, 0)
        return Schema(
            fps=int(self.fps) if self.fps.is_integer() else self.fps,
            image_size=(height, width),
            cameras=tuple(self.cameras),
            state=self.state.vector(),
            action=self.action.vector(),
            has_reward=self.reward is not None,
            has_success=self.success is not None,
            has_terminated=self.terminated is not None,
            extras=tuple((name, vector.vector()) for name, vector in self.extra.items()),
            maps=tuple(
                PixelMap(name, map_cfg.dtype, (map_cfg.size[0], map_cfg.size[1]), map_cfg.unit)
                for name, map_cfg in self.maps.items()
            ),
        )


@configclass
class MergePartCfg(Cfg):
    """One of the datasets that are merged."""

    dataset: str
    """Name of a published dataset."""
    weight: float = 1.0
    """How often one of its frames is drawn in training, relative to a frame of weight 1."""
    cameras: dict[str, str] = {}
    """Camera of the merged dataset -> camera of this one, where the names differ."""
    state: dict[str, str] = {}
    """The same for dimensions of the state."""
    action: dict[str, str] = {}
    """The same for dimensions of the action."""

    def __post_init__(self):
        if self.weight <= 0:
            raise ValueError(f"weight is {self.weight}, must be positive; leave the dataset out")


@configclass
class MergeCfg(Cfg):
    """A dataset made of published ones. Cameras and dimensions are aligned by name."""

    name: str
    """Name of the dataset; the file is configs/datasets/NAME.yaml."""
    merge: list[MergePartCfg]
    """The datasets, in the order their episodes are put in."""
    cameras: list[str] | None = None
    """Cameras of the merged dataset, those of the first by default."""
    state: list[str] | None = None
    """Dimensions of the state, those of the first by default."""
    action: list[str] | None = None
    """Dimensions of the action, those of the first by default."""
    fill: dict[str, float] = {}
    """What a dataset that lacks a feature gets: "state.elbow": 0.0, "action.gripper": 1.0,
    "cameras.wrist": 0 (grey level of the whole image, 0..255).
    """
    robot_type: str = "mixed"
    """The robots."""
    licence: str
    """SPDX expression for the whole."""
    provenance: str
    """What is merged and why, in a sentence or two."""
    checks: ChecksCfg = ChecksCfg()
    """How strict validation is."""

    def __post_init__(self):
        names = [part.dataset for part in self.merge]
        if len(names) < 2:
            raise ValueError("merge needs at least two datasets")
        for name in names:
            if names.count(name) > 1 or name == self.name:
                raise ValueError(f"merge names '{name}' twice, or itself")
        for key, value in self.fill.items():
            kind, _, name = key.partition(".")
            if kind not in ("cameras", "state", "action") or not name:
                raise ValueError(f"fill: '{key}' is not cameras.NAME, state.NAME or action.NAME")
            if kind == "cameras" and not 0 <= value <= 255:
                raise ValueError(f"fill: {key} is {value}, must be a grey level in 0..255")


@dataclasses.dataclass(frozen=True)
class DatasetPaths:
    """Where the forms of one dataset lie."""

    raw: Path
    converted: Path
    reports: Path
    published: Path


AnyDatasetCfg = DatasetCfg | MergeCfg | EditCfg


def load_dataset_cfg(name: str) -> DatasetCfg:
    """The config `configs/datasets/NAME.yaml` of the workspace, or else of those that rrf ships.

    Raises:
        ValueError: For an unknown name (with the closest known one), if the dataset is made from
            other datasets, or naming the file and the key that is wrong.
    """
    return _of_recordings(load_any_cfg(name), name)


def load_any_cfg(name: str) -> AnyDatasetCfg:
    """As `load_dataset_cfg`, of a merged or edited dataset too."""
    known = workspace.configs("datasets")
    if name not in known:
        place = workspace.home() / "configs" / "datasets"
        raise ValueError(f"no dataset '{name}' in {place}{did_you_mean(name, known)}")
    return read_any_cfg(known[name])


def read_dataset_cfg(path: str | Path) -> DatasetCfg:
    """The config in one YAML file, whose name must be the dataset's.

    Raises ValueError naming file and key.
    """
    return _of_recordings(read_any_cfg(path), str(path))


def read_any_cfg(path: str | Path) -> AnyDatasetCfg:
    """As `read_dataset_cfg`, of a merged or edited dataset too."""
    path = Path(path)
    check_dataset_name(path.stem, str(path))
    data = read_yaml(path)
    kind = MergeCfg if "merge" in data else EditCfg if "edit_of" in data else DatasetCfg
    try:
        cfg = kind.from_dict(data)
    except ValueError as error:
        raise ValueError(f"{path}: {first_error(error)}") from error
    if cfg.name != path.stem:
        raise ValueError(f"{path}: name is '{cfg.name}', but the file is called '{path.stem}'")
    return cfg


def check_dataset_name(name: str, where: str) -> None:
    """Raise ValueError for the name of another directory in datasets/."""
    if name in _TAKEN_NAMES:
        raise ValueError(f"{where}: datasets/{name} holds something else; take another name")


def dataset_paths(cfg: AnyDatasetCfg) -> DatasetPaths:
    """Where the forms of `cfg`'s dataset lie in this workspace.

    A merged dataset is made of those in `raw`, an edited one of the converted dataset there.
    """
    datasets = workspace.home() / "datasets"
    if isinstance(cfg, DatasetCfg):
        raw = local_path(cfg.source.path)
    else:
        raw = datasets if isinstance(cfg, MergeCfg) else datasets / "converted" / cfg.edit_of
    return DatasetPaths(
        raw=raw,
        converted=datasets / "converted" / cfg.name,
        reports=datasets / "reports" / cfg.name,
        published=datasets / cfg.name,
    )


def _of_recordings(cfg: AnyDatasetCfg, where: str) -> DatasetCfg:
    if not isinstance(cfg, DatasetCfg):
        how = "merged from other datasets" if isinstance(cfg, MergeCfg) else "edited from another"
        raise ValueError(f"{where} is {how} and has no recordings of its own")
    return cfg
