"""What `configs/datasets/NAME.yaml` says of a dataset that is made by editing another:

    name: metaworld-clean
    edit_of: metaworld-demo
    steps:
      - delete: [3, 10-14]
      - trim: {end_s: 0.5}
      - relabel: {instructions: {"open the drawer": "pull the drawer open"}}
      - rename: {cameras.corner2: cameras.front}
      - cut: 4

Steps are done in this order. Episodes go by their numbers in the origin, whatever earlier steps
removed: a whole number, or a range "10-14" with both ends. Features go by these names:

    cameras.NAME, state.NAME, action.NAME    a camera, a dimension of the state or of the action
    maps.NAME                                images that are not RGB, such as depth
    extra.NAME                               other numbers, such as forces
    reward, success, terminated              next.reward, next.success, next.terminated
    language                                 the language annotations
"""

import dataclasses
import re
import typing

from rrf.config import Cfg, configclass
from rrf.data.conversion.checks_cfg import ChecksCfg

KINDS = ("cameras", "state", "action", "maps", "extra")
FLAGS = ("reward", "success", "terminated")
LANGUAGE = "language"
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
Episodes = list[int | str]


@configclass
class RelabelCfg(Cfg):
    """Other instructions."""

    instructions: dict[str, str] = {}
    """Instruction -> the one that stands in its place."""
    episodes: dict[int | str, str] = {}
    """An episode, or a range of episodes -> its instruction."""

    def __post_init__(self):
        if not self.instructions and not self.episodes:
            raise ValueError("relabel needs instructions: {OLD: NEW} or episodes: {3-7: NEW}")
        for text in [*self.instructions.values(), *self.episodes.values()]:
            if not text.strip():
                raise ValueError("relabel: an instruction may not be empty")


@configclass
class TrimCfg(Cfg):
    """Frames to leave out at the beginning and the end of episodes."""

    start: int = 0
    """Frames to leave out at the beginning."""
    end: int = 0
    """Frames to leave out at the end."""
    start_s: float = 0.0
    """The same in seconds, instead of start; rounded to whole frames."""
    end_s: float = 0.0
    """The same in seconds, instead of end; rounded to whole frames."""
    episodes: Episodes | None = None
    """Of these episodes; of all by default."""

    def __post_init__(self):
        values = (self.start, self.end, self.start_s, self.end_s)
        if min(values) < 0 or not any(values):
            raise ValueError("trim needs a positive start, end, start_s or end_s")
        if (self.start and self.start_s) or (self.end and self.end_s):
            raise ValueError("trim: give frames (start, end) or seconds (start_s, end_s), not both")

    def frames(self, fps: float) -> tuple[int, int]:
        """How many frames to leave out at the beginning and at the end."""
        return self.start or round(self.start_s * fps), self.end or round(self.end_s * fps)


@configclass
class SplitCfg(Cfg):
    """One of several parts that episodes are dealt to by chance. The parts of one split differ only
    in `part`, so no episode is in two of them.
    """

    parts: dict[str, float]
    """Part -> its fraction of the episodes; together at most 1."""
    part: str
    """The part that this dataset is."""
    seed: int = 0
    """Seed of the order in which episodes are dealt."""

    def __post_init__(self):
        if not self.parts or min(self.parts.values()) <= 0 or sum(self.parts.values()) > 1 + 1e-9:
            raise ValueError(
                f"split: fractions {self.parts} must be positive and add up to at most 1"
            )
        if self.part not in self.parts:
            raise ValueError(f"split: there is no part '{self.part}' in {list(self.parts)}")


@configclass
class StepCfg(Cfg):
    """One step. Exactly one field is given."""

    delete: Episodes | None = None
    """Leave these episodes out."""
    keep: Episodes | None = None
    """Leave all other episodes out."""
    split: SplitCfg | None = None
    """Keep a random part of the episodes."""
    trim: TrimCfg | None = None
    """Leave frames out at the beginning or the end of episodes."""
    relabel: RelabelCfg | None = None
    """Give other instructions."""
    rename: dict[str, str] | None = None
    """Feature -> its new name."""
    drop: list[str] | None = None
    """Leave these features out."""
    cut: int | None = None
    """Cut every episode into so many neighbouring ones of equal length; only as the last step."""

    def __post_init__(self):
        given = [name for name, value in vars(self).items() if value is not None]
        if len(given) != 1:
            raise ValueError(f"a step is one of {', '.join(vars(self))}; this one has {given}")
        for episodes in (self.delete, self.keep):
            if episodes is not None:
                numbers(episodes)
        if self.cut is not None and self.cut < 2:
            raise ValueError(f"cut is {self.cut}, allowed: 2 or more")

    @property
    def name(self) -> str:
        """Which field is given."""
        return next(name for name, value in vars(self).items() if value is not None)

    def plain(self) -> dict[str, typing.Any]:
        """The step as a config file says it, without defaults and class names."""
        value = getattr(self, self.name)
        if isinstance(value, Cfg):
            fields = dataclasses.fields(value)  # type: ignore[arg-type]
            given = {field.name: getattr(value, field.name) for field in fields}
            value = {f.name: given[f.name] for f in fields if given[f.name] != _default(f)}
        return {self.name: value}


def _default(field: dataclasses.Field) -> typing.Any:
    is_made = field.default_factory is not dataclasses.MISSING
    return field.default_factory() if is_made else field.default  # type: ignore[misc]


@configclass
class EditCfg(Cfg):
    """A dataset made by editing another one, which stays as it is."""

    name: str
    """Name of the dataset; the file is configs/datasets/NAME.yaml."""
    edit_of: str
    """Name of the dataset that is edited, as it was converted. It need not have passed validation:
    an edit may be what mends it.
    """
    steps: list[StepCfg]
    """What is done, in order."""
    robot_type: str | None = None
    """The robot, by default that of the origin."""
    licence: str | None = None
    """SPDX identifier, by default that of the origin."""
    provenance: str | None = None
    """How the dataset came to be, by default what the origin says."""
    checks: ChecksCfg = ChecksCfg()
    """How strict validation is."""

    def __post_init__(self):
        if not self.steps:
            raise ValueError("steps is empty, so nothing would be edited")
        if self.edit_of == self.name:
            raise ValueError(f"edit_of names {self.name} itself; an edit gets a name of its own")


def numbers(episodes: Episodes) -> list[int]:
    """The episodes that a list of numbers and ranges names, ascending.

    Raises ValueError naming what is neither.
    """
    chosen: set[int] = set()
    for episode in episodes:
        match = _RANGE.fullmatch(str(episode).replace(" ", ""))
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"'{episode}' is neither an episode (3) nor a range of them (10-14)")
        chosen.update(range(first, last + 1))
    return sorted(chosen)
