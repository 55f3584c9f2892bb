"""The page of truth about robot data: which keys exist, their dtype, shape, unit, range and frame.

| key                       | dtype[shape]   | meaning (unit, range)                               |
|---------------------------|----------------|-----------------------------------------------------|
| observation.images.<name> | uint8[H, W, 3] | RGB 0..255, row 0 on top, seen before the action    |
| observation.state         | float32[D]     | proprioception before the action, a unit per entry  |
| action                    | float32[A]     | command executed from this frame to the next        |
| extra.<name>              | float32[E]     | other numbers, seen before the action: force,       |
|                           |                | tactile, torque; no policy sees them (optional)     |
| maps.<name>               | number[H, W]   | one number per pixel, not RGB: depth, a mask; unit  |
|                           |                | in info.json (optional; float may be NaN or Inf)    |
| task (in tasks.parquet)   | str            | the language instruction, one English sentence      |
| next.reward               | float32[1]     | reward received for the action (optional)           |
| next.success              | bool[1]        | task solved after the action (optional)             |
| next.terminated           | bool[1]        | the task itself ended with the action, not by a     |
|                           |                | time limit (optional)                               |
| language_persistent,      | language       | annotations of the episode, and of the frame: see   |
| language_events           |                | rrf.data.language (optional)                        |
| timestamp                 | float32        | s since the episode began, frame_index / fps        |
| frame_index               | int64          | frame within the episode, 0..length-1               |
| episode_index             | int64          | episode within the dataset                          |
| index                     | int64          | frame within the dataset                            |
| task_index                | int64          | row of tasks.parquet: which instruction             |

On disk this is LeRobot v3.0; `rrf.data.conversion.lerobot_writer` is the only writer. Legend: T
frames of an episode, D state dimension, A action dimension, H W image height and width.
"""

import dataclasses
import typing
from collections.abc import Mapping, Sequence

import numpy as np

from rrf.data.language import Language

STATE = "observation.state"
ENVIRONMENT_STATE = "observation.environment_state"  # lerobot's name; here it is part of the state
ACTION = "action"
IMAGE_PREFIX = "observation.images."
MAP_PREFIX = "maps."  # not observation: lerobot's policies take what begins so as a state
EXTRA_PREFIX = "extra."  # neither
REWARD = "next.reward"
SUCCESS = "next.success"
TERMINATED = "next.terminated"
SCALARS = {REWARD: "float32", SUCCESS: "bool", TERMINATED: "bool"}
"""The optional keys of one number per frame, in the order of the files -> dtype."""
INDEX_KEYS = ("timestamp", "frame_index", "episode_index", "index", "task_index")


@dataclasses.dataclass(frozen=True)
class Vector:
    """A named vector: one name per dimension, its unit, and the limits values may not leave."""

    names: tuple[str, ...]
    unit: str
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None

    @property
    def units(self) -> list[str]:
        """The unit of each dimension."""
        units = [unit.strip() for unit in self.unit.split(",")]
        return units if len(units) == len(self.names) else [self.unit] * len(self.names)


def joined_units(units: Sequence[str]) -> str:
    """The units of all dimensions as the text of a `Vector`, a unit that all share only once."""
    return units[0] if len(set(units)) == 1 else ", ".join(units)


@dataclasses.dataclass(frozen=True)
class PixelMap:
    """Images that are not RGB: one number per pixel. Each map has a size of its own."""

    name: str
    dtype: str  # of numpy, one of rrf.data.dataset.maps.DTYPES
    size: tuple[int, int]  # (height, width) in pixels
    unit: str


@dataclasses.dataclass(frozen=True)
class Schema:
    """What every episode of one dataset holds."""

    fps: float  # an int where it is a whole number
    image_size: tuple[int, int]  # (height, width) in pixels; (0, 0) without cameras
    cameras: tuple[str, ...]  # none in a dataset of states alone
    state: Vector
    action: Vector
    has_reward: bool = True
    has_success: bool = True
    has_terminated: bool = False
    maps: tuple[PixelMap, ...] = ()
    has_language: bool = False
    extras: tuple[tuple[str, Vector], ...] = ()  # name and what it holds

    @property
    def scalars(self) -> list[str]:
        """Those of `SCALARS` that there are."""
        there = (self.has_reward, self.has_success, self.has_terminated)
        return [key for key, is_there in zip(SCALARS, there, strict=True) if is_there]


@dataclasses.dataclass(frozen=True)
class EncodedImages:
    """Images of one camera that are still compressed, so that they can be passed on as they are."""

    blobs: Sequence[bytes]  # T images, each a whole JPEG or PNG file
    suffix: typing.Literal["jpg", "png"]

    def __len__(self) -> int:
        return len(self.blobs)


@dataclasses.dataclass
class Episode:
    """One recorded episode, all arrays over the same T frames."""

    images: dict[str, np.ndarray | EncodedImages]  # camera name -> uint8 [T, H, W, 3], row 0 on top
    state: np.ndarray  # float32 [T, D]
    action: np.ndarray  # float32 [T, A]
    instruction: str
    source: str  # where it came from, "file:demo_3"; stands in every error about it
    reward: np.ndarray | None = None  # float32 [T]
    success: np.ndarray | None = None  # bool [T]
    terminated: np.ndarray | None = None  # bool [T]
    maps: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Name of a map -> [T, H, W] of the map's dtype, size and unit."""
    language: Language | None = None
    extras: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # float32 [T, E]
    facts: Mapping[str, str | float] = dataclasses.field(default_factory=dict)
    """More columns of the episode table."""

    def __len__(self) -> int:
        return len(self.action)

    @property
    def scalars(self) -> dict[str, np.ndarray | None]:
        """Each of `SCALARS`, [T]; None where the episode has none."""
        return dict(zip(SCALARS, (self.reward, self.success, self.terminated), strict=True))


@dataclasses.dataclass
class Observation:
    """What a policy sees, for B environments or frames."""

    images: dict[str, np.ndarray]  # camera name -> uint8 [B, H, W, 3], row 0 on top
    state: np.ndarray  # float32 [B, D], physical units; with past ones: `rrf.data.dataset.history`
    instruction: list[str]  # B sentences
    maps: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Name of a map -> [B, H, W], if asked for."""
    advantage: np.ndarray | None = None
    """int8 [B]: 1 if the recorded action was better than usual, -1 if not, 0 if this is not told.
    None: 1, which asks a policy that reads it for good actions."""
    robots: list[str] | None = None
    """The embodiment tag of each row, in a batch of several robots. Then the images are named as
    the policy's, and state and actions are padded with zeros. None: all rows are of one robot."""
    seen_steps_ago: np.ndarray | None = None
    """int64 [B]: how many steps ago a policy looked that looks less often than it acts; what it saw
    then are the images NAME@seen (`rrf.data.dataset.history`). None: it looks now."""

    def __len__(self) -> int:
        return len(self.instruction)


@dataclasses.dataclass
class Batch:
    """What supervised training sees: observations and the action chunks that followed them (K steps
    each)."""

    observation: Observation
    action: (
        np.ndarray
    )  # float32 [B, K, A], physical units; past the episode's end the last action repeats
    is_pad: np.ndarray
    """bool [B, K], True where the step lies past the episode's end. In a batch of several robots
    bool [B, K, A], True also for dimensions that the row's robot does not have."""
    history: "History | None" = None  # what came before, if asked for


@dataclasses.dataclass
class History:
    """What was seen in the P frames before each of B frames, earliest first.

    Before the episode's beginning its first frame repeats. P may differ between images and state.
    """

    images: dict[str, np.ndarray]  # camera name -> uint8 [B, P, H, W, 3]
    is_image_pad: np.ndarray  # bool [B, P], True where the frame lies before the episode
    state: np.ndarray  # float32 [B, P, D], physical units
    is_state_pad: np.ndarray  # bool [B, P]


def check_episode(episode: Episode, schema: Schema) -> None:
    """Raise ValueError naming episode, key, frame and value if `schema` does not allow it."""
    length, where = len(episode), episode.source
    if length == 0:
        raise ValueError(f"{where}: the episode has no frames")
    if not episode.instruction.strip():
        raise ValueError(f"{where}: the instruction is empty")
    if set(episode.images) != set(schema.cameras):
        raise ValueError(
            f"{where}: cameras {sorted(episode.images)}, expected {sorted(schema.cameras)}"
        )
    for name, images in episode.images.items():
        if isinstance(images, EncodedImages):  # their size shows when they are decoded
            if len(images) != length:
                raise ValueError(
                    f"{where}: {IMAGE_PREFIX}{name} has {len(images)} frames, expected {length}"
                )
            continue
        shape = (length, *schema.image_size, 3)
        if images.dtype != np.uint8 or images.shape != shape:
            raise ValueError(
                f"{where}: {IMAGE_PREFIX}{name} is {images.dtype}{list(images.shape)}, "
                f"expected uint8{list(shape)}"
            )
    _check_maps(where, episode, schema)
    if (episode.language is not None) != schema.has_language:
        raise ValueError(
            f"{where} has {'' if episode.language else 'no '}language annotations, the dataset "
            f"{'has them' if schema.has_language else 'has none'}"
        )
    _check_vectors(f"{where}: {STATE}", episode.state, (length, len(schema.state.names)))
    _check_vectors(f"{where}: {ACTION}", episode.action, (length, len(schema.action.names)))
    if set(episode.extras) != {name for name, _ in schema.extras}:
        expected = sorted(name for name, _ in schema.extras)
        raise ValueError(f"{where}: extra {sorted(episode.extras)}, expected {expected}")
    for name, vector in schema.extras:
        shape = (length, len(vector.names))
        _check_vectors(f"{where}: {EXTRA_PREFIX}{name}", episode.extras[name], shape)
    for key in schema.scalars:
        values, dtype = episode.scalars[key], SCALARS[key]
        if dtype == "float32":
            _check_vectors(f"{where}: {key}", values, (length,))
        elif values is None or values.dtype != np.dtype(dtype) or values.shape != (length,):
            raise ValueError(f"{where}: {key} is missing or not {dtype}[{length}]")


def _check_maps(where: str, episode: Episode, schema: Schema) -> None:
    if set(episode.maps) != {map_spec.name for map_spec in schema.maps}:
        expected = sorted(map_spec.name for map_spec in schema.maps)
        raise ValueError(f"{where}: maps {sorted(episode.maps)}, expected {expected}")
    for map_spec in schema.maps:
        values, shape = episode.maps[map_spec.name], (len(episode), *map_spec.size)
        if values.dtype != np.dtype(map_spec.dtype) or values.shape != shape:
            raise ValueError(
                f"{where}: {MAP_PREFIX}{map_spec.name} is {values.dtype}{list(values.shape)}, "
                f"expected {map_spec.dtype}{list(shape)}"
            )


def _check_vectors(where: str, values: np.ndarray | None, shape: tuple[int, ...]) -> None:
    if values is None:
        raise ValueError(f"{where} is missing")
    if values.dtype != np.float32 or values.shape != shape:
        raise ValueError(
            f"{where} is {values.dtype}{list(values.shape)}, expected float32{list(shape)}"
        )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        frame, *dimension = bad[0].tolist()
        at = f"frame {frame}" + (f", dimension {dimension[0]}" if dimension else "")
        raise ValueError(f"{where} at {at} is {values[tuple(bad[0])]}; NaN and Inf are not allowed")
