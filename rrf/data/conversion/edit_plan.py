"""The steps of an edit, worked out before anything is read or written: which frames of which
episodes remain, what they are told, and which features are left under which names.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from rrf.config import did_you_mean
from rrf.data.conversion.edit_cfg import (
    FLAGS,
    KINDS,
    LANGUAGE,
    Episodes,
    RelabelCfg,
    SplitCfg,
    StepCfg,
    TrimCfg,
    numbers,
)
from rrf.data.schema import IMAGE_PREFIX, SCALARS, Schema, Vector, joined_units

_FULL_NAMES = {key: key.removeprefix("next.") for key in SCALARS}


@dataclasses.dataclass(frozen=True)
class Cut:
    """An episode of the edited dataset: frames `first` to `stop` of one of the origin's."""

    number: int  # in the origin
    first: int
    stop: int
    instruction: str


class EditPlan:
    """What an edited dataset holds.

    Args:
        schema: What the origin holds.
        episodes: Its episodes, whole.
        steps: What is done to it, in order.

    Raises:
        ValueError: Naming the step and the episode, instruction or feature that does not fit, or if
            no episode is left.
    """

    def __init__(self, schema: Schema, episodes: Sequence[Cut], steps: Sequence[StepCfg]):
        self._origin = schema
        self._numbers = {cut.number for cut in episodes}
        self._cuts = {cut.number: cut for cut in episodes}
        # feature -> the origin's, in the order of the origin
        self._features = {name: name for name in _features(schema)}
        self._num_pieces = 1  # of each episode
        for index, step in enumerate(steps):
            try:
                self._do(step)
            except ValueError as error:
                raise ValueError(f"steps[{index}] ({step.name}): {error}") from error

    @property
    def cuts(self) -> list[Cut]:
        """The episodes, in the order of the origin."""
        return [piece for cut in self._cuts.values() for piece in _pieces(cut, self._num_pieces)]

    @property
    def cameras(self) -> dict[str, str]:
        """Camera -> the origin's."""
        return self._of("cameras")

    @property
    def maps(self) -> dict[str, str]:
        """Images that are not RGB -> the origin's."""
        return self._of("maps")

    @property
    def extras(self) -> dict[str, str]:
        """Other numbers -> the origin's."""
        return self._of("extra")

    def columns(self, kind: str) -> list[int]:
        """Which of the origin's dimensions of "state" or "action" are left."""
        names = getattr(self._origin, kind).names
        return [names.index(name) for name in self._of(kind).values()]

    def schema(self) -> Schema:
        """What the edited dataset holds."""
        cameras = tuple(self.cameras)
        return dataclasses.replace(
            self._origin,
            cameras=cameras,
            image_size=self._origin.image_size if cameras else (0, 0),
            state=self._vector("state"),
            action=self._vector("action"),
            has_reward="reward" in self._features,
            has_success="success" in self._features,
            has_terminated="terminated" in self._features,
            has_language=LANGUAGE in self._features,
            maps=tuple(
                dataclasses.replace(map_spec, name=new)
                for new, old in self.maps.items()
                for map_spec in self._origin.maps
                if map_spec.name == old
            ),
            extras=tuple((new, dict(self._origin.extras)[old]) for new, old in self.extras.items()),
        )

    def _do(self, step: StepCfg) -> None:
        if self._num_pieces > 1:
            raise ValueError("it stands after cut, which must be the last step")
        if step.delete is not None:
            self._remove(self._chosen(step.delete))
        elif step.keep is not None:
            self._remove(set(self._cuts) - set(self._chosen(step.keep)))
        elif step.split is not None:
            self._remove(set(self._cuts) - _dealt(step.split, list(self._cuts)))
        elif step.trim is not None:
            self._trim(step.trim)
        elif step.relabel is not None:
            self._relabel(step.relabel)
        elif step.rename is not None:
            self._rename(step.rename)
        elif step.drop is not None:
            self._drop(step.drop)
        elif step.cut is not None:
            self._cut(step.cut)

    def _chosen(self, episodes: Episodes) -> list[int]:
        """The episodes meant, which must be there."""
        chosen = numbers(episodes)
        for number in chosen:
            if number not in self._numbers:
                raise ValueError(f"there is no episode {number}, only 0 to {max(self._numbers)}")
            if number not in self._cuts:
                raise ValueError(f"episode {number} was removed by an earlier step")
        return chosen

    def _remove(self, gone) -> None:
        left = {number: cut for number, cut in self._cuts.items() if number not in gone}
        if not left:
            raise ValueError("no episode would be left")
        self._cuts = left

    def _trim(self, trim: TrimCfg) -> None:
        start, end = trim.frames(self._origin.fps)
        chosen = list(self._cuts) if trim.episodes is None else self._chosen(trim.episodes)
        for number in chosen:
            cut = self._cuts[number]
            if cut.stop - end <= cut.first + start:
                raise ValueError(
                    f"episode {number} has {cut.stop - cut.first} frames, so none is left without "
                    f"the first {start} and the last {end}; delete it in a step before this one, "
                    "or name the episodes to trim"
                )
            self._cuts[number] = dataclasses.replace(
                cut, first=cut.first + start, stop=cut.stop - end
            )

    def _cut(self, num_pieces: int) -> None:
        for number, cut in self._cuts.items():
            if cut.stop - cut.first < num_pieces:
                raise ValueError(
                    f"episode {number} has {cut.stop - cut.first} frames, too few for {num_pieces} "
                    "episodes; cut into fewer, or delete it in a step before this one"
                )
        self._num_pieces = num_pieces

    def _relabel(self, relabel: RelabelCfg) -> None:
        known = {cut.instruction for cut in self._cuts.values()}
        for old in relabel.instructions:
            if old not in known:
                raise ValueError(
                    f"no episode has the instruction '{old}'{did_you_mean(old, known)}"
                )
        texts = {
            number: relabel.instructions[cut.instruction]
            for number, cut in self._cuts.items()
            if cut.instruction in relabel.instructions
        }
        for episodes, text in relabel.episodes.items():
            texts |= dict.fromkeys(self._chosen([episodes]), text)
        for number, text in texts.items():
            self._cuts[number] = dataclasses.replace(self._cuts[number], instruction=text)

    def _rename(self, rename: Mapping[str, str]) -> None:
        names = {self._known_name(old): short_name(new) for old, new in rename.items()}
        for old, new in names.items():
            kind, name = old.partition(".")[0], new.partition(".")[2]
            if old in (*FLAGS, LANGUAGE):
                raise ValueError(f"'{old}' is called so in every dataset and keeps its name")
            if new.partition(".")[0] != kind or not name or "/" in name:
                raise ValueError(
                    f"'{old}' cannot become '{new}'; give a name like {kind}.NAME, without '/'"
                )
        new_names = [names.get(name, name) for name in self._features]
        twice = [name for name in new_names if new_names.count(name) > 1]
        if twice:
            raise ValueError(f"two features would be called '{twice[0]}'")
        self._features = dict(zip(new_names, self._features.values(), strict=True))

    def _drop(self, drop: Sequence[str]) -> None:
        gone = {self._known_name(name) for name in drop}
        self._features = {new: old for new, old in self._features.items() if new not in gone}
        for kind in ("state", "action"):
            if not self._of(kind):
                raise ValueError(f"the {kind} would have no dimension left")

    def _known_name(self, name: str) -> str:
        name = short_name(name)
        if name not in self._features:
            raise ValueError(f"there is no '{name}'{did_you_mean(name, self._features)}")
        return name

    def _of(self, kind: str) -> dict[str, str]:
        """The features of a kind: name -> the origin's."""
        pairs = ((new.partition("."), old.partition(".")) for new, old in self._features.items())
        return {new[2]: old[2] for new, old in pairs if new[0] == kind and new[1]}

    def _vector(self, kind: str) -> Vector:
        vector: Vector = getattr(self._origin, kind)
        columns, units = self.columns(kind), vector.units
        low, high = (
            tuple(bound[column] for column in columns) if bound is not None else None
            for bound in (vector.low, vector.high)
        )
        return Vector(tuple(self._of(kind)), joined_units([units[c] for c in columns]), low, high)


def short_name(name: str) -> str:
    """A feature as steps name it, also if it is given as in the dataset's files."""
    if name.startswith(IMAGE_PREFIX):
        return f"cameras.{name.removeprefix(IMAGE_PREFIX)}"
    return _FULL_NAMES.get(name, name.removeprefix("observation."))


def _features(schema: Schema) -> list[str]:
    names = {"cameras": schema.cameras, "state": schema.state.names, "action": schema.action.names}
    names["maps"] = tuple(map_spec.name for map_spec in schema.maps)
    names["extra"] = tuple(name for name, _ in schema.extras)
    features = [f"{kind}.{name}" for kind in KINDS for name in names[kind]]
    features += [_FULL_NAMES[key] for key in schema.scalars]
    return features + [LANGUAGE] * schema.has_language


def _pieces(cut: Cut, count: int) -> list[Cut]:
    """Neighbouring parts of an episode, whose lengths differ by at most a frame."""
    length = cut.stop - cut.first
    ends = [cut.first + length * part // count for part in range(count + 1)]
    return [
        dataclasses.replace(cut, first=first, stop=stop) for first, stop in itertools.pairwise(ends)
    ]


def _dealt(split: SplitCfg, episodes: Sequence[int]) -> set[int]:
    """The episodes of a part: all are shuffled, then each part takes its fraction in turn."""
    shuffled = np.random.default_rng(split.seed).permutation(np.array(episodes))
    ends = np.cumsum([0.0, *split.parts.values()]) * len(episodes)
    at = list(split.parts).index(split.part)
    first, stop = (round(end) for end in ends[at : at + 2].tolist())
    return set(shuffled[first:stop].tolist())
