"""A converted dataset to another one, as `configs/datasets/NAME.yaml` says under `edit_of`.

The origin is only read. Compressed images and video are copied as they are; only the video of an
episode whose new first frame is no keyframe is compressed again, which the record says. Everything
that counts frames or episodes, and all statistics, are made anew. The episode table names the
origin's episode of each; meta/conversion.json has the steps and the digest of the origin.

Legend: T frames of an episode, D dimensions.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from rrf.data.conversion.conversion_record import (
    problems_of,
    read_conversion,
    write_conversion,
)
from rrf.data.conversion.edit_cfg import EditCfg, StepCfg
from rrf.data.conversion.edit_plan import Cut, EditPlan
from rrf.data.conversion.encoded import EncodedEpisode, encode_episode
from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.conversion.parts import parts_of
from rrf.data.conversion.stored_dataset import StoredDataset
from rrf.data.dataset import layout, parquet
from rrf.data.dataset.held_out import split_range
from rrf.data.dataset.stats import ImageStats
from rrf.data.files import content_digest
from rrf.data.formats.modality import Modality, Part, read_modality, write_modality
from rrf.data.language import Language
from rrf.data.schema import (
    ACTION,
    EXTRA_PREFIX,
    IMAGE_PREFIX,
    REWARD,
    STATE,
    SUCCESS,
    TERMINATED,
    Episode,
)

OnProgress = Callable[[int, int, str], None]  # done, total, what is being worked on


def plan_edit(steps: list[StepCfg], root: Path) -> EditPlan:
    """What an edit of the dataset at `root` would hold. Nothing is written.

    Raises ValueError as `EditPlan` does, or if there is no dataset.
    """
    return _plan(steps, StoredDataset(root))


def edit(
    cfg: EditCfg,
    origin: str | Path,
    out: str | Path,
    on_progress: OnProgress = lambda done, total, what: None,
) -> tuple[int, list[str]]:
    """Edit the converted dataset at `origin` into one at `out`, replacing what stood at `out`.

    Args:
        cfg: The steps.
        origin: The directory of the dataset that is edited; it is not changed.
        out: The edited dataset's directory.
        on_progress: Called after each episode.

    Returns:
        The number of frames, and what was odd.

    Raises:
        ValueError: If the origin is missing or damaged, if a step does not fit it, or if another
            process is making the same dataset. What stood at `out` is unchanged.
    """
    with parts_of(Path(out)):
        source = StoredDataset(Path(origin))
        digest = content_digest(origin)
        work = _Edit(cfg, source, _plan(cfg.steps, source), on_progress)

        def complete(root: Path) -> None:
            modality = read_modality(source.root)
            if modality is not None:
                write_modality(root, _edited_modality(modality, work.plan))
            work.write_record(root, digest)

        provenance = source.info.get("provenance") or {}
        stated = {"licence": cfg.licence, "provenance": cfg.provenance}
        frames = write_dataset(
            out,
            work.schema,
            work.episodes(),
            storage=source.encoding,
            robot_type=cfg.robot_type or source.info.get("robot_type") or "unknown",
            provenance=provenance
            | {"name": cfg.name}
            | {k: v for k, v in stated.items() if v is not None},
            more_info=work.more_info(),
            on_complete=complete,
        )
    return frames, work.warnings()


class _Edit:
    """One edit."""

    def __init__(
        self, cfg: EditCfg, source: StoredDataset, plan: EditPlan, on_progress: OnProgress
    ):
        self._cfg, self._source, self.plan, self._on_progress = cfg, source, plan, on_progress
        self.schema = plan.schema()
        self._num_recompressed = self._num_lost_success = 0

    def episodes(self) -> Iterator[EncodedEpisode]:
        """The episodes in order."""
        cuts, rows = self.plan.cuts, {row["episode_index"]: row for row in self._source.rows}
        for done, cut in enumerate(cuts, start=1):
            yield self._episode(rows[cut.number], cut)
            self._on_progress(done, len(cuts), f"episode {cut.number}")

    def more_info(self) -> dict:
        """Entries of info.json that the origin has beside the usual ones."""
        info = self._source.info
        kept = {key: info[key] for key in ("weights", "merged", "tools") if key in info}
        splits, total = {}, len(self._source.rows)
        for name, text in info.get("splits", {}).items():
            bounds = split_range(text, total)
            inside = [
                index
                for index, cut in enumerate(self.plan.cuts)
                if bounds is not None and cut.number in bounds
            ]
            if inside:
                splits[name] = f"{inside[0]}:{inside[-1] + 1}"
        return kept | ({"splits": splits} if len(splits) > 1 else {})

    def warnings(self) -> list[str]:
        """What was odd about this edit."""
        messages = []
        if self._num_recompressed:
            messages.append(
                "videos compressed again, because the first frame that is left is no keyframe: "
                f"{self._num_recompressed}"
            )
        if self._num_lost_success:
            messages.append(
                "episodes that lost their success, because it stands in frames that were trimmed: "
                f"{self._num_lost_success}"
            )
        return messages

    def write_record(self, root: Path, digest: str) -> None:
        """Write down what was done to which content."""
        record = read_conversion(self._source.root) or {"warnings": []}
        cut_numbers = record.get("cut_episodes")
        whole = {row["episode_index"]: row["length"] for row in self._source.rows}
        continues = [
            None
            if cut_numbers is None
            else cut.number in cut_numbers and cut.stop == whole[cut.number]
            for cut in self.plan.cuts
        ]
        name = self._cfg.edit_of
        odd = [f"{name}: {text}" for text in record["warnings"]] + self.warnings()
        done = {
            "origin": {"dataset": name, "sha256": digest},
            "steps": [step.plain() for step in self._cfg.steps],
        }
        problems = [problems_of(record, cut.number) for cut in self.plan.cuts]
        write_conversion(root, "edit", name, odd, continues, problems, done)

    def _episode(self, row: Mapping, cut: Cut) -> EncodedEpisode:
        source, kept = self._source, slice(cut.first, cut.stop)
        whole = source.frames(row)
        frames = whole.slice(cut.first, cut.stop - cut.first)
        is_video = source.encoding.storage == "video"
        success = whole[SUCCESS].to_numpy() if self.schema.has_success else None
        if success is not None and success.any() and not success[kept].any():
            self._num_lost_success += 1
        episode = Episode(
            images={
                name: source.images(frames, origin_name)
                for name, origin_name in self.plan.cameras.items()
                if not is_video
            },
            state=parquet.as_matrix(frames[STATE])[:, self.plan.columns("state")],
            action=parquet.as_matrix(frames[ACTION])[:, self.plan.columns("action")],
            instruction=cut.instruction,
            source=f"{source.root}:episode_{cut.number}",
            reward=frames[REWARD].to_numpy() if self.schema.has_reward else None,
            success=success[kept] if success is not None else None,
            terminated=frames[TERMINATED].to_numpy() if self.schema.has_terminated else None,
            maps={
                name: source.map(row, frames, origin_name, cut.first, cut.stop)
                for name, origin_name in self.plan.maps.items()
            },
            extras={
                name: parquet.as_matrix(frames[f"{EXTRA_PREFIX}{origin_name}"])
                for name, origin_name in self.plan.extras.items()
            },
        )
        if self.schema.has_language:
            episode.language = self._language(whole, cut, episode.source)
        shown = dataclasses.replace(self.schema, cameras=()) if is_video else self.schema
        encoded = encode_episode(episode, shown, source.encoding)
        for name, origin_name in self.plan.cameras.items() if is_video else ():
            key, stats = f"{IMAGE_PREFIX}{name}", ImageStats()
            encoded.videos[key], is_new = source.video(row, origin_name, stats, cut.first, cut.stop)
            encoded.image_stats[key] = stats
            self._num_recompressed += is_new
        columns = {layout.ORIGIN_COLUMN: cut.number}
        for column in row:
            of_merging = column in (layout.DATASET_COLUMN, layout.WEIGHT_COLUMN)
            if of_merging or column.startswith(layout.LOG_PREFIX):
                columns[column] = row[column]
        return dataclasses.replace(encoded, columns=columns)

    def _language(self, whole: pa.Table, cut: Cut, where: str) -> Language:
        cameras = {
            f"{IMAGE_PREFIX}{origin_name}": f"{IMAGE_PREFIX}{name}"
            for name, origin_name in self.plan.cameras.items()
        }
        language = self._source.language(whole, where)
        assert language is not None  # the schema has it
        language = language.cut(cut.first, cut.stop, self.schema.fps)
        return language.renamed(cameras, where, "with a step drop: [language]")


def _plan(steps: list[StepCfg], source: StoredDataset) -> EditPlan:
    whole = [
        Cut(row["episode_index"], 0, row["length"], str(row["tasks"][0])) for row in source.rows
    ]
    return EditPlan(source.schema, whole, steps)


def _edited_modality(modality: Modality, plan: EditPlan) -> Modality:
    """GR00T's parts of the vectors that are left, and its cameras."""
    cameras = {origin_name: name for name, origin_name in plan.cameras.items()}
    video = {
        name: f"{IMAGE_PREFIX}{cameras[key.removeprefix(IMAGE_PREFIX)]}"
        for name, key in modality.video.items()
        if key.removeprefix(IMAGE_PREFIX) in cameras
    }
    return dataclasses.replace(
        modality,
        state=_edited_parts(modality.state, plan.columns("state")),
        action=_edited_parts(modality.action, plan.columns("action")),
        video=video,
    )


def _edited_parts(parts: Mapping[str, Part], columns: list[int]) -> dict[str, Part]:
    edited = {}
    for name, part in parts.items():
        left = [new for new, old in enumerate(columns) if part.start <= old < part.end]
        if left:  # dimensions keep their order, so what is left of a part is in one piece
            edited[name] = dataclasses.replace(part, start=left[0], end=left[-1] + 1)
    return edited
