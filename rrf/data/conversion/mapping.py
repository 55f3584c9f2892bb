"""Episodes in a source's own terms to episodes of a dataset, as `configs/datasets/NAME.yaml` says.

Order: take the keys and parts named, pair actions with what was seen before them, leave out frames
where the dataset's fps is a whole fraction of the recordings', convert, cast to float32. Of the k
frames that become one, images and state are those of the first (seen before the action); of the
action, increments are summed and absolute dimensions taken from the last; rewards are summed;
success and termination are those of any.

Legend: T frames of an episode, D dimensions, k recorded frames per frame of the dataset.
"""

import math
from collections.abc import Iterator

import numpy as np

from rrf import atomic
from rrf.config import did_you_mean
from rrf.data.conversion.dataset_cfg import DatasetCfg, MapCfg
from rrf.data.conversion.vector_cfg import VectorCfg
from rrf.data.conversion.vectors import convert, pick_actions, sums
from rrf.data.dataset.maps import decode_map
from rrf.data.image_header import read_image_header
from rrf.data.images import decode_image, resize
from rrf.data.language import Language
from rrf.data.memory import check_fits
from rrf.data.raw import RawEpisode
from rrf.data.schema import IMAGE_PREFIX, EncodedImages, Episode

LAST = "last"  # DatasetCfg.success: every episode ends in success
_FPS_TOLERANCE = 2e-3  # 29.97 counts as 30


def raw_keys(cfg: DatasetCfg) -> dict[str, str]:
    """All raw keys a config asks for -> where it does."""
    keys = {raw: f"cameras.{camera}" for camera, raw in cfg.cameras.items()}
    keys |= {map_cfg.key: f"maps.{name}.key" for name, map_cfg in cfg.maps.items()}
    for name, vector in (("state", cfg.state), ("action", cfg.action)):
        keys |= {selector.key: f"{name}.keys" for selector in vector.selectors()}
    if cfg.instruction is not None and cfg.instruction.key is not None:
        keys[cfg.instruction.key] = "instruction.key"
    if cfg.reward is not None:
        keys[cfg.reward] = "reward"
    if cfg.success is not None and cfg.success != LAST:
        keys[cfg.success] = "success"
    if cfg.terminated is not None:
        keys[cfg.terminated] = "terminated"
    return keys


class Mapper:
    """Maps the episodes of one dataset and remembers what was odd about them."""

    def __init__(self, cfg: DatasetCfg):
        self._cfg = cfg
        self.warnings: dict[str, tuple[int, str]] = {}  # what -> (in how many episodes, first one)
        self._read: dict[str, np.ndarray] = {}  # of the episode at hand
        self.widths: dict[str, tuple[int, str]] = {}  # raw key -> (dimensions, episode that had it)

    def __call__(self, raw: RawEpisode) -> Episode:
        """The episode.

        Raises:
            ValueError: Naming source, key and frame for what is missing, of a wrong shape, not a
                number, or recorded at a rate that does not fit.
        """
        cfg = self._cfg
        self._read = {}
        length = len(self._numbers(raw, cfg.action.selectors()[0].key))
        if cfg.after_action and (length < 2 or raw.language is not None):
            why = "has a single frame" if length < 2 else "has language annotations"
            raise ValueError(f"{raw.source} {why}, which after_action of the config cannot treat")
        step, done = self._step(raw), self._rows("action")
        state = self._vector(raw, cfg.state, length)[self._rows("state")]
        state = convert(state[::step], cfg.state)
        recorded = self._vector(raw, cfg.action, length)[done]
        action = convert(pick_actions(recorded, cfg.action, step), cfg.action, state, cfg.state)
        reward = success = terminated = None
        if cfg.reward is not None:
            reward = sums(self._column(raw, cfg.reward, length)[done], step).astype(np.float32)
        if cfg.success is not None:
            flags = np.arange(length) == length - 1
            if cfg.success != LAST:
                flags = self._column(raw, cfg.success, length) > 0
            success = sums(flags[done].astype(np.int64), step) > 0
        if cfg.terminated is not None:
            flags = self._column(raw, cfg.terminated, length) > 0
            terminated = sums(flags[done].astype(np.int64), step) > 0
        return Episode(
            images={
                camera: self._images(raw, key, camera, length, step)
                for camera, key in cfg.cameras.items()
            },
            state=state.astype(np.float32),
            action=action.astype(np.float32),
            instruction=self._instruction(raw),
            source=raw.source,
            reward=reward,
            success=success,
            terminated=terminated,
            maps={
                name: self._map(raw, map_cfg, f"{raw.source}: {map_cfg.key} (maps.{name})", length)[
                    self._rows(name)
                ][::step]
                for name, map_cfg in cfg.maps.items()
            },
            language=self._language(raw, step),
        )

    def _rows(self, name: str) -> slice:
        """The rows that are kept of what was recorded, so that each belongs to its action."""
        if not self._cfg.after_action:
            return slice(None)
        return slice(0, -1) if name in self._cfg.after_action else slice(1, None)

    def _language(self, raw: RawEpisode, step: int) -> Language | None:
        """The annotations, whose events of k frames stand on the one that is kept."""
        if raw.language is None:
            return None
        cameras = {key: f"{IMAGE_PREFIX}{name}" for name, key in self._cfg.cameras.items()}
        hint = "language: drop in the config"
        return raw.language.thinned(step).renamed(cameras, raw.source, hint)

    def _step(self, raw: RawEpisode) -> int:
        """k: every how many recorded frames there is one in the dataset."""
        declared, fps = self._cfg.source.fps, self._cfg.fps
        if declared and raw.fps and not math.isclose(declared, raw.fps, rel_tol=_FPS_TOLERANCE):
            self._warn(
                f"the recordings say {raw.fps:g} frames/s, source.fps says {declared:g}", raw.source
            )
        rate = declared or raw.fps or raw.usual_fps or fps
        step = round(rate / fps)
        if step < 1 or not math.isclose(step * fps, rate, rel_tol=_FPS_TOLERANCE):
            other = raw.declared_fps
            hint = "which source.fps corrects if it is wrong"
            if other is not None and declared is None:
                hint = (
                    f"the metadata say {other:g}: if that is right, set source: {{fps: {other:g}}}"
                )
            raise ValueError(
                f"{raw.source} was recorded at {rate:g} frames/s, but the config says fps: {fps}; "
                f"it must be a whole fraction of the recorded rate ({hint})"
            )
        if step > 1:
            self._warn(f"one of {step} frames is kept: {rate:g} to {fps} frames/s", raw.source)
        return step

    def _vector(self, raw: RawEpisode, vector: VectorCfg, length: int) -> np.ndarray:
        """float64 [T, D] as recorded."""
        parts = []
        for selector in vector.selectors():
            values = self._numbers(raw, selector.key)
            if len(values) != length:
                raise ValueError(
                    f"{raw.source}: {selector.key} has {len(values)} frames, others {length}"
                )
            part, width = selector.part, values.shape[1]
            if max(part.start or 0, part.stop or 0) > width or not len(range(width)[part]):
                raise ValueError(
                    f"{raw.source}: {selector.text} lies outside the {width} dimensions it has"
                )
            parts.append(values[:, part])
        values = np.concatenate(parts, axis=1).astype(np.float64)
        if values.shape[1] != len(vector.names):
            raise ValueError(
                f"{raw.source}: {' + '.join(vector.keys)} has {values.shape[1]} dimensions, "
                f"the config names {len(vector.names)}"
            )
        return values

    def _column(self, raw: RawEpisode, key: str, length: int) -> np.ndarray:
        """float64 [T]; a single value per episode stands at its last frame, after zeros."""
        values = self._numbers(raw, key)
        if values.shape[1] == 1 and len(values) == 1 < length:
            return np.concatenate([np.zeros(length - 1), values[0]])
        if values.shape != (length, 1):
            raise ValueError(
                f"{raw.source}: {key} has shape {list(values.shape)}, expected [{length}]"
            )
        return values[:, 0].astype(np.float64)

    def _numbers(self, raw: RawEpisode, key: str) -> np.ndarray:
        """A raw key as finite numbers [T, D]."""
        if key in self._read:
            return self._read[key]
        values = self._array(raw, key)
        if values.ndim and not len(values):
            raise ValueError(f"{raw.source}: {key} has no frames")
        if values.dtype.kind in "US":
            values = _parse_json(values, f"{raw.source}: {key}")
            self._warn(f"{key} holds JSON text instead of numbers; it was parsed", raw.source)
        if values.dtype.kind not in "biuf" or values.ndim == 0:
            raise ValueError(f"{raw.source}: {key} is {values.dtype}, not numbers per frame")
        values = values.reshape(len(values), -1)
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            frame, dimension = bad[0].tolist()
            raise ValueError(
                f"{raw.source}: {key} at frame {frame}, dimension {dimension} is "
                f"{values[frame, dimension]}; NaN and Inf are not allowed"
            )
        check_width(self.widths, key, values.shape[1], raw.source)
        self._read[key] = values
        return values

    def _array(self, raw: RawEpisode, key: str) -> np.ndarray:
        if key in raw.images:
            raise ValueError(f"{raw.source}: {key} holds images; name it under cameras")
        if key not in raw.arrays:
            raise ValueError(f"{raw.source} has no key '{key}'{did_you_mean(key, raw.arrays)}")
        return raw.arrays[key]

    def _images(
        self, raw: RawEpisode, key: str, camera: str, length: int, step: int
    ) -> np.ndarray | EncodedImages:
        where = f"{raw.source}: {key} ({IMAGE_PREFIX}{camera})"
        if key not in raw.images:
            hint = did_you_mean(key, raw.images)
            if key in raw.arrays:
                array = raw.arrays[key]
                hint = f": it holds {array.dtype}{list(array.shape)}; name it under maps, if it is"
                hint += " depth, a mask or the like"
            raise ValueError(f"{raw.source} has no images under the key '{key}'{hint}")
        images = raw.images[key]
        if len(images) != length:
            raise ValueError(f"{where} has {len(images)} frames, the action {length}")
        if isinstance(images, EncodedImages):
            images = EncodedImages(images.blobs[self._rows(camera)][::step], images.suffix)
            sizes = _sizes(images, where, step)
        else:
            if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
                raise ValueError(
                    f"{where} is {images.dtype}{list(images.shape)}, expected uint8[T, H, W, 3]"
                )
            images = images[self._rows(camera)][::step]
            sizes = [images.shape[1:3]]
        height, width = self._cfg.schema().image_size
        if tuple(sizes[0]) == (height, width):
            return images
        if sizes[0][0] * width != sizes[0][1] * height:
            before = f"{sizes[0][0]}x{sizes[0][1]}"
            self._warn(
                f"{key} is distorted, from {before} to {height}x{width} (height x width)",
                raw.source,
            )
        check_fits((len(images), height, width, 3), 1, f"{where}, resized to uint8")
        frames = images if isinstance(images, np.ndarray) else _decoded(images, where, step)
        return np.stack([resize(image, (height, width)) for image in frames])

    def _map(self, raw: RawEpisode, cfg: MapCfg, where: str, length: int) -> np.ndarray:
        """Images that are not RGB, [T, H, W], exactly as recorded."""
        images = raw.images.get(cfg.key)
        if isinstance(images, EncodedImages):
            values = decode_map(images, where)
        elif images is not None:
            raise ValueError(f"{where} holds RGB images; name it under cameras")
        else:
            values = self._array(raw, cfg.key)
        if values.ndim == 4 and 1 in values.shape[1::2]:  # a single channel, last or first
            values = values.squeeze(3 if values.shape[3] == 1 else 1)
        height, width = cfg.size
        if values.ndim != 3 or values.shape[1:] != (height, width):
            raise ValueError(
                f"{where} has frames of {list(values.shape[1:])}, the config says size: "
                f"[{height}, {width}]; maps keep the size they were recorded with"
            )
        if len(values) != length:
            raise ValueError(f"{where} has {len(values)} frames, the action {length}")
        if not np.can_cast(values.dtype, cfg.dtype, "safe"):
            raise ValueError(
                f"{where} is {values.dtype}, which dtype: {cfg.dtype} of the config cannot hold "
                "without loss"
            )
        return values.astype(cfg.dtype, copy=False)

    def _instruction(self, raw: RawEpisode) -> str:
        cfg = self._cfg.instruction
        text = raw.instruction
        if cfg is not None and cfg.key is None:
            text = cfg.text
        elif cfg is not None and cfg.key is not None:
            values = self._array(raw, cfg.key).reshape(-1)
            if values.dtype.kind not in "US":
                raise ValueError(f"{raw.source}: {cfg.key} is {values.dtype}, not text")
            text = str(values.astype(str)[0]) if len(values) else ""
            if (values != values[:1]).any():
                frame = int((values != values[:1]).argmax())
                self._warn(
                    f"{cfg.key} changes within an episode, at frame {frame} of the first such; "
                    "the first text is taken",
                    raw.source,
                )
            text = text if text.strip() else cfg.text
        if text is None or not text.strip():
            raise ValueError(
                f"{raw.source} has no instruction; say in the config where it stands "
                "(instruction: {key: ...}) or what it is (instruction: {text: ...})"
            )
        return text

    def _warn(self, what: str, source: str) -> None:
        count, first = self.warnings.get(what, (0, source))
        self.warnings[what] = (count + 1, first)


def check_width(widths: dict[str, tuple[int, str]], key: str, width: int, source: str) -> None:
    """Raise ValueError naming both episodes if `key` had another number of dimensions before."""
    expected, first = widths.setdefault(key, (width, source))
    if width != expected:
        raise ValueError(
            f"{key} has {width} dimensions in {source}, but {expected} in {first}; one dataset "
            "cannot hold both, so convert them as two"
        )


def _parse_json(texts: np.ndarray, where: str) -> np.ndarray:
    rows = []
    for frame, text in enumerate(texts.reshape(-1).astype(str)):
        try:
            row = np.atleast_1d(np.asarray(atomic.parse_json(text), np.float64))
        except (ValueError, TypeError):
            raise ValueError(
                f"{where} at frame {frame} is the text {str(text)[:60]!r}, not numbers"
            ) from None
        if rows and row.shape != rows[0].shape:
            raise ValueError(
                f"{where} at frame {frame} holds {row.size} numbers, the frames before "
                f"{rows[0].size}"
            )
        rows.append(row)
    return np.stack(rows)


def _sizes(images: EncodedImages, where: str, step: int) -> list[tuple[int, int]]:
    """(height, width) of each, which must be the same, without decoding."""
    sizes = []
    for index, blob in enumerate(images.blobs):
        at = f"{where} at frame {index * step}"
        try:
            sizes.append(read_image_header(blob).size)
        except ValueError as error:
            raise ValueError(f"{at}: {error}") from error
        if sizes[-1] != sizes[0]:
            (height, width), (height_0, width_0) = sizes[-1], sizes[0]
            raise ValueError(f"{at} is {height}x{width}, at frame 0 {height_0}x{width_0}")
    return sizes


def _decoded(images: EncodedImages, where: str, step: int) -> Iterator[np.ndarray]:
    for index, blob in enumerate(images.blobs):
        try:
            yield decode_image(blob)
        except ValueError as error:
            raise ValueError(f"{where} at frame {index * step}: {error}") from error
