"""What `configs/datasets/NAME.yaml` says: where raw recordings lie, what their keys mean, and when
a dataset is good.

datasets/raw/...            recordings as they came           (datasets.dvc)
datasets/converted/NAME     the same as LeRobot v3             (stage convert)
datasets/reports/NAME       what validation found              (stage validate)
datasets/NAME               converted + norm_stats.json        (stage publish, after a pass)
"""

import dataclasses
import typing
from pathlib import Path

from rrf import workspace
from rrf.config import Cfg, configclass, did_you_mean, first_error, read_yaml
from rrf.data.schema import Schema, Vector

Severity = typing.Literal["error", "warn", "off"]


@configclass
class SourceCfg(Cfg):
    """Where raw recordings lie."""

    format: typing.Literal["robomimic"] = "robomimic"
    """File format of the recordings."""
    path: str
    """Directory of the recordings, relative to the repository root."""
    pattern: str = "*.hdf5"
    """Which files in it; they are read in alphabetical order."""


@configclass
class VectorCfg(Cfg):
    """A vector feature: which raw keys are concatenated into it, and what its dimensions are."""

    keys: list[str]
    """Raw keys, concatenated along the last axis."""
    names: list[str]
    """One name per dimension."""
    unit: str
    """Unit of the dimensions, in order, comma-separated where they differ."""
    low: list[float] | None = None
    """Smallest allowed value per dimension."""
    high: list[float] | None = None
    """Largest allowed value per dimension."""

    def __post_init__(self):
        if not self.keys or not self.names:
            raise ValueError("keys and names must not be empty")
        for bound in ("low", "high"):
            values = getattr(self, bound)
            if values is not None and len(values) != len(self.names):
                raise ValueError(f"{bound} has {len(values)} values for {len(self.names)} names")

    def vector(self) -> Vector:
        low = tuple(self.low) if self.low is not None else None
        high = tuple(self.high) if self.high is not None else None
        return Vector(tuple(self.names), self.unit, low, high)


@configclass
class LimitsCfg(Cfg):
    """Numbers the checks compare with."""

    min_episode_length: int = 2
    """Fewest frames in an episode."""
    max_episode_length: int = 100_000
    """Most frames in an episode."""
    max_timestamp_error_s: float = 1e-4
    """How far a frame's timestamp may be from frame_index / fps."""
    min_image_std: float = 2.0
    """Below this standard deviation of its pixels (0..255) a frame counts as blank."""
    max_frozen_fraction: float = 0.9
    """Largest fraction of an episode's frames that may equal the frame before."""
    min_hold_previous_error: float = 0.05
    """A dataset where repeating the last action is this good (L1 in action standard deviations)
    proves little.
    """


@configclass
class ChecksCfg(Cfg):
    """How strict validation is."""

    severity: dict[str, Severity] = {}
    """Check id -> error (stops the pipeline), warn (is reported) or off, where the default should
    not hold.
    """
    limits: LimitsCfg = LimitsCfg()
    """Numbers the checks compare with."""


@configclass
class DatasetCfg(Cfg):
    """One dataset, from raw recordings to the published form."""

    name: str
    """Name of the dataset; the file is configs/datasets/NAME.yaml."""
    source: SourceCfg
    """Where the raw recordings lie."""
    fps: int
    """Frames per second; must equal what the recordings say."""
    storage: typing.Literal["image", "video"] = "image"
    """How images are stored: lossless PNG inside parquet, or h264 video."""
    image_size: list[int]
    """[height, width] of every camera, px."""
    cameras: dict[str, str]
    """Camera name -> raw key."""
    state: VectorCfg
    """Proprioception."""
    action: VectorCfg
    """The command executed from this frame to the next."""
    reward: str | None = None
    """Raw key of the reward, none if not recorded."""
    success: str | None = None
    """Raw key of the success flag, none if not recorded."""
    robot_type: str = "unknown"
    """The robot."""
    licence: str
    """SPDX identifier of the recordings' licence."""
    provenance: str
    """How the recordings came to be, in a sentence or two."""
    checks: ChecksCfg = ChecksCfg()
    """How strict validation is."""

    def __post_init__(self):
        if self.fps <= 0:
            raise ValueError(f"fps is {self.fps}, must be positive")
        if len(self.image_size) != 2 or min(self.image_size) <= 0:
            raise ValueError(f"image_size is {self.image_size}, must be [height, width]")
        if not self.cameras:
            raise ValueError("cameras must name at least one camera")

    def schema(self) -> Schema:
        """What every episode of this dataset holds."""
        height, width = self.image_size
        return Schema(
            fps=self.fps,
            image_size=(height, width),
            cameras=tuple(self.cameras),
            state=self.state.vector(),
            action=self.action.vector(),
            has_reward=self.reward is not None,
            has_success=self.success is not None,
        )


@dataclasses.dataclass(frozen=True)
class DatasetPaths:
    """Where the forms of one dataset lie."""

    raw: Path
    converted: Path
    reports: Path
    published: Path


def load_dataset_cfg(name: str) -> DatasetCfg:
    """The config `configs/datasets/NAME.yaml` of this repository.

    Raises:
        ValueError: For an unknown name (with the closest known one), or naming the file and the key
            that is wrong.
    """
    directory = workspace.home() / "configs" / "datasets"
    path = directory / f"{name}.yaml"
    if not path.is_file():
        known = [file.stem for file in directory.glob("*.yaml")]
        raise ValueError(f"no dataset '{name}' in {directory}{did_you_mean(name, known)}")
    return read_dataset_cfg(path)


def read_dataset_cfg(path: str | Path) -> DatasetCfg:
    """The config in one YAML file, whose name must be the dataset's.

    Raises ValueError naming file and key.
    """
    path = Path(path)
    try:
        cfg = DatasetCfg.from_dict(read_yaml(path))
    except ValueError as error:
        raise ValueError(f"{path}: {first_error(error)}") from error
    if cfg.name != path.stem:
        raise ValueError(f"{path}: name is '{cfg.name}', but the file is called '{path.stem}'")
    return cfg


def dataset_paths(cfg: DatasetCfg) -> DatasetPaths:
    """Where the forms of `cfg`'s dataset lie in this repository."""
    root = workspace.home()
    datasets = root / "datasets"
    return DatasetPaths(
        raw=root / cfg.source.path,
        converted=datasets / "converted" / cfg.name,
        reports=datasets / "reports" / cfg.name,
        published=datasets / cfg.name,
    )
