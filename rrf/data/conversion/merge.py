"""Several published datasets to one, as `configs/datasets/NAME.yaml` says under `merge`.

Cameras and dimensions are aligned by name. Compressed images and video are copied as they are. The
episode table says of each episode which dataset it came from and its weight, which is how often one
of its frames is drawn in training relative to a frame of weight 1; info.json lists the datasets.

Legend: T frames of an episode, D dimensions.
"""

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rrf.config import did_you_mean
from rrf.data.conversion.conversion_record import (
    problems_of,
    read_conversion,
    write_conversion,
)
from rrf.data.conversion.dataset_cfg import MergeCfg, MergePartCfg
from rrf.data.conversion.encoded import EncodedEpisode, encode_episode
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.conversion.parts import parts_of
from rrf.data.conversion.stored_dataset import StoredDataset
from rrf.data.conversion.video_encoding import encode_video
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.stats import ImageStats
from rrf.data.encoding import Encoding
from rrf.data.language import Language
from rrf.data.schema import (
    ACTION,
    EXTRA_PREFIX,
    IMAGE_PREFIX,
    REWARD,
    STATE,
    SUCCESS,
    TERMINATED,
    EncodedImages,
    Episode,
    Schema,
    Vector,
    joined_units,
)

OnProgress = Callable[[int, int, str], None]  # done, total, what is being worked on
_Value = typing.TypeVar("_Value")


def merge(
    cfg: MergeCfg,
    datasets: str | Path,
    out: str | Path,
    on_progress: OnProgress = lambda done, total, what: None,
) -> int:
    """Merge published datasets into one at `out`, replacing what stood there.

    Args:
        cfg: What is merged.
        datasets: The directory that holds the datasets by their names.
        out: The merged dataset's directory.
        on_progress: Called after each episode.

    Returns:
        The number of frames.

    Raises:
        ValueError: If a dataset is missing, naming the datasets and features that do not fit, or
            if another process is making the same. What stood at `out` is unchanged.
    """
    inputs = [_Input(part, Path(datasets) / part.dataset) for part in cfg.merge]
    seeing = [dataset for dataset in inputs if dataset.schema.cameras]
    encoding = _shared(seeing, "image storage", lambda dataset: dataset.encoding, Encoding())
    schema = _schema(cfg, inputs)
    total = sum(len(dataset.rows) for dataset in inputs)
    nothing = _nothing_logged(inputs)

    def episodes() -> Iterator[EncodedEpisode]:
        done = 0
        for part in inputs:
            for row in part.rows:
                episode = part.episode(row, schema, encoding, cfg.fill)
                yield dataclasses.replace(episode, columns={**nothing, **episode.columns})
                done += 1
                on_progress(done, total, part.name)

    with parts_of(Path(out)):
        return write_dataset(
            out,
            schema,
            episodes(),
            storage=encoding,
            robot_type=cfg.robot_type,
            provenance={"name": cfg.name, "licence": cfg.licence, "provenance": cfg.provenance},
            more_info={
                "weights": {dataset.name: dataset.cfg.weight for dataset in inputs},
                "merged": {dataset.name: dataset.info.get("provenance", {}) for dataset in inputs},
                **_tools(inputs),
            },
            on_complete=lambda root: _write_record(root, inputs, schema),
        )


class _Input(StoredDataset):
    """A dataset that goes into the merged one."""

    def __init__(self, cfg: MergePartCfg, root: Path):
        super().__init__(root)
        self.cfg, self.name = cfg, cfg.dataset

    def column(self, kind: str, name: str) -> int | None:
        """Where the merged dataset's camera or dimension `name` stands in this one."""
        part_name = getattr(self.cfg, kind).get(name, name)
        names = self.names(kind)
        return names.index(part_name) if part_name in names else None

    def names(self, kind: str) -> Sequence[str]:
        """The cameras, or the dimensions of state or action."""
        return self.schema.cameras if kind == "cameras" else getattr(self.schema, kind).names

    def episode(
        self, row: Mapping, schema: Schema, encoding: Encoding, fill: Mapping[str, float]
    ) -> EncodedEpisode:
        """One episode in the merged dataset's terms."""
        rows = self.frames(row)
        episode = Episode(
            images={},
            state=self._aligned(rows, "state", schema.state, fill),
            action=self._aligned(rows, "action", schema.action, fill),
            instruction=self.instruction(rows),
            source=f"{self.root}:episode_{row['episode_index']}",
            reward=rows[REWARD].to_numpy() if schema.has_reward else None,
            success=rows[SUCCESS].to_numpy() if schema.has_success else None,
            terminated=rows[TERMINATED].to_numpy() if schema.has_terminated else None,
            maps={map_spec.name: self.map(row, rows, map_spec.name) for map_spec in schema.maps},
            extras={
                name: parquet.as_matrix(rows[f"{EXTRA_PREFIX}{name}"]) for name, _ in schema.extras
            },
        )
        if schema.has_language:
            episode.language = self._annotations(rows, schema, episode.source)
        is_video = encoding.storage == "video"
        for camera in schema.cameras if not is_video else ():
            episode.images[camera] = self._pictures(rows, camera, schema, fill)
        shown = dataclasses.replace(schema, cameras=()) if is_video else schema
        encoded = encode_episode(episode, shown, encoding)
        for camera in schema.cameras if is_video else ():
            key, stats = f"{IMAGE_PREFIX}{camera}", ImageStats()
            encoded.videos[key] = self._clip(row, camera, schema, encoding, fill, stats)
            encoded.image_stats[key] = stats
        weight = self.cfg.weight * float(row.get(layout.WEIGHT_COLUMN, 1.0))  # it may be merged too
        columns = {k: v for k, v in row.items() if k.startswith(layout.LOG_PREFIX)}
        columns |= {layout.DATASET_COLUMN: self.name, layout.WEIGHT_COLUMN: weight}
        return dataclasses.replace(encoded, columns=columns)

    def _annotations(self, rows: pa.Table, schema: Schema, where: str) -> Language:
        cameras = {}
        for name in schema.cameras:
            index = self.column("cameras", name)
            if index is not None:
                cameras[f"{IMAGE_PREFIX}{self.schema.cameras[index]}"] = f"{IMAGE_PREFIX}{name}"
        hint = f"edit {self.name} first, with a step drop: [language]"
        return (self.language(rows, where) or Language()).renamed(cameras, where, hint)

    def _aligned(
        self, rows: pa.Table, kind: str, vector: Vector, fill: Mapping[str, float]
    ) -> np.ndarray:
        recorded = parquet.as_matrix(rows[STATE if kind == "state" else ACTION])
        values = np.empty((len(recorded), len(vector.names)), np.float32)
        for index, name in enumerate(vector.names):
            column = self.column(kind, name)
            values[:, index] = fill[f"{kind}.{name}"] if column is None else recorded[:, column]
        return values

    def _pictures(
        self, rows: pa.Table, camera: str, schema: Schema, fill: Mapping[str, float]
    ) -> np.ndarray | EncodedImages:
        index = self.column("cameras", camera)
        if index is None:
            shape = (rows.num_rows, *schema.image_size, 3)
            return np.broadcast_to(np.uint8(round(fill[f"cameras.{camera}"])), shape)
        return self.images(rows, self.schema.cameras[index])

    def _clip(
        self,
        row: Mapping,
        camera: str,
        schema: Schema,
        encoding: Encoding,
        fill: Mapping[str, float],
        stats: ImageStats,
    ) -> bytes:
        """The episode as an mp4 file; counts its pixels."""
        index, length, fps = self.column("cameras", camera), row["length"], schema.fps
        if index is None:
            image = np.full((*schema.image_size, 3), round(fill[f"cameras.{camera}"]), np.uint8)
            for _ in range(length):
                stats.update(image[None])
            interval = encoding.keyframe_interval(fps)
            return encode_video([image] * length, fps, schema.image_size, encoding.codec, interval)
        return self.video(row, self.schema.cameras[index], stats)[0]


def _write_record(root: Path, inputs: Sequence[_Input], schema: Schema) -> None:
    """Write down what was odd about the recordings of all datasets, and what merging lost."""
    odd, continues, problems = [], [], []
    for part in inputs:
        record = read_conversion(part.root) or {"warnings": []}
        odd += [f"{part.name}: {text}" for text in [*record["warnings"], *_lost(part, schema)]]
        cut = record.get("cut_episodes")
        continues += [None if cut is None else n in cut for n in range(len(part.rows))]
        problems += [problems_of(record, n) for n in range(len(part.rows))]
    names = ", ".join(part.name for part in inputs)
    write_conversion(root, "merge", names, odd, continues, problems)


def _lost(part: _Input, schema: Schema) -> Iterator[str]:
    """What a dataset has and the merged one has not, though the config does not say so."""
    for key in part.schema.scalars:
        if key not in schema.scalars:
            yield f"{key} is left out, because another of the datasets lacks it"
    for lost in part.schema.maps:
        if lost not in schema.maps:
            yield f"maps.{lost.name} is left out, because not all of the datasets have the same"
    for name, vector in part.schema.extras:
        if (name, vector) not in schema.extras:
            yield f"extra.{name} is left out, because not all of the datasets have the same"
    splits = part.info.get("splits", {})
    if len(splits) > 1:
        ranges = ", ".join(f"{name} {text}" for name, text in splits.items())
        yield f"its splits are not kept ({ranges}): all episodes count as train"


def _nothing_logged(inputs: list[_Input]) -> dict[str, str | float]:
    """What an episode that no robot logged has in the columns of those that one did."""
    columns = (column for dataset in inputs for row in dataset.rows for column in row.items())
    logged = ((name, value) for name, value in columns if name.startswith(layout.LOG_PREFIX))
    return {name: "" if isinstance(value, str) else -1.0 for name, value in logged}


def _schema(cfg: MergeCfg, inputs: list[_Input]) -> Schema:
    cameras = tuple(_names(cfg, inputs, "cameras"))
    seeing = [part for part in inputs if part.schema.cameras]
    size = _shared(seeing, "image_size", lambda part: part.schema.image_size, (0, 0))
    return Schema(
        fps=_shared(inputs, "fps", lambda part: part.schema.fps, 0),
        image_size=size if cameras else (0, 0),
        cameras=cameras,
        state=_vector(cfg, inputs, "state"),
        action=_vector(cfg, inputs, "action"),
        has_reward=all(part.schema.has_reward for part in inputs),
        has_success=all(part.schema.has_success for part in inputs),
        has_terminated=all(part.schema.has_terminated for part in inputs),
        maps=tuple(
            part for part in inputs[0].schema.maps if all(part in i.schema.maps for i in inputs)
        ),
        extras=tuple(
            extra
            for extra in inputs[0].schema.extras
            if all(extra in part.schema.extras for part in inputs)
        ),
        has_language=any(part.schema.has_language for part in inputs),
    )


def _tools(inputs: Sequence[_Input]) -> dict[str, list[dict]]:
    """The entry of info.json with the tools that the annotations of all datasets call."""
    tools: list[dict] = []
    for part in inputs:
        tools += [tool for tool in part.info.get("tools") or [] if tool not in tools]
    return {"tools": tools} if tools else {}


def _shared(
    inputs: list[_Input], what: str, of: Callable[[_Input], _Value], default: _Value
) -> _Value:
    """What all datasets must have in common, the default if there are none."""
    if not inputs:
        return default
    first = of(inputs[0])
    for part in inputs[1:]:
        if of(part) != first:
            raise ValueError(
                f"{what} of {inputs[0].name} is {first}, of {part.name} {of(part)}; convert one of "
                "them again to match the other, then merge"
            )
    return first


def _names(cfg: MergeCfg, inputs: list[_Input], kind: str) -> list[str]:
    """The cameras or dimensions of the merged dataset; each dataset has them or fills them."""
    wanted = getattr(cfg, kind)
    names = list(inputs[0].names(kind)) if wanted is None else list(wanted)
    for key in cfg.fill:
        name = key.removeprefix(f"{kind}.")
        if name != key and name not in names:
            hint = did_you_mean(name, names)
            raise ValueError(f"fill: '{key}': the merged dataset has no '{name}'{hint}")
    for part in inputs:
        for merged_name, part_name in getattr(part.cfg, kind).items():
            if merged_name not in names or part_name not in part.names(kind):
                raise ValueError(
                    f"{part.name}: {kind}: there is no '{merged_name}' or no '{part_name}'"
                )
        for name in names:
            if part.column(kind, name) is None and f"{kind}.{name}" not in cfg.fill:
                hint = did_you_mean(name, part.names(kind))
                raise ValueError(
                    f"{part.name} has no '{name}' under {kind}{hint}; "
                    f"say which of its own it is (merge: {kind}: {{{name}: ...}}), what stands in "
                    f"for it (fill: {{{kind}.{name}: ...}}), or leave it out ({kind}: [...])"
                )
        used = {part.column(kind, name) for name in names}
        for index, name in enumerate(part.names(kind)):
            if wanted is None and index not in used:
                raise ValueError(
                    f"{part.name} has '{name}' under {kind}, which {inputs[0].name} lacks; list "
                    f"what the merged dataset holds ({kind}: [...])"
                )
    return names


def _vector(cfg: MergeCfg, inputs: list[_Input], kind: str) -> Vector:
    names = _names(cfg, inputs, kind)
    units: list[str] = []
    bounds: dict[str, list[float]] = {"low": [], "high": []}
    for name in names:
        columns = {part.name: part.column(kind, name) for part in inputs}
        having = {n: column for n, column in columns.items() if column is not None}
        vectors: dict[str, Vector] = {part.name: getattr(part.schema, kind) for part in inputs}
        by_unit = {vectors[n].units[column]: n for n, column in having.items()}
        if len(by_unit) > 1:
            differ = ", but ".join(f"'{unit}' in {n}" for unit, n in by_unit.items())
            raise ValueError(f"{kind} '{name}' is in {differ}; convert one of them with a scale")
        units.append(next(iter(by_unit), ""))
        for bound, pick in (("low", min), ("high", max)):
            limits = {n: getattr(vectors[n], bound) for n in having}
            if all(limit is not None for limit in limits.values()):
                values = [limits[n][column] for n, column in having.items()]
                if len(having) < len(inputs):
                    values.append(cfg.fill[f"{kind}.{name}"])
                bounds[bound].append(pick(values))
    low, high = (tuple(values) if len(values) == len(names) else None for values in bounds.values())
    return Vector(tuple(names), joined_units(units), low, high)
