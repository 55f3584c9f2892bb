"""How raw keys become a vector feature: which are taken, what the dimensions are called, and what
is done to them. All of it is data, so that a new dataset needs no code.

    action:
      keys: [action/ee_delta, "action/gripper[0]"]
      names: [dx, dy, dz, gripper]
      unit: m, m, m, fraction open
      deltas: [dx, dy, dz]
      convert:
        - {kind: scale, names: [dx, dy, dz], factor: 0.05}
        - {kind: gripper, names: [gripper], open: -1, closed: 1}
"""

import dataclasses
import re
import typing

from rrf.config import Cfg, configclass, did_you_mean
from rrf.data.schema import Vector

Kind = typing.Literal["scale", "gripper", "xyzw_to_wxyz", "delta_to_absolute", "absolute_to_delta"]
_SELECTOR = re.compile(r"(?P<key>.+?)(?:\[(?P<start>-?\d*)(?P<colon>:?)(?P<stop>-?\d*)\])?")
_OWN_FIELDS = {
    "scale": ("factor", "offset"),
    "gripper": ("open", "closed"),
    "xyzw_to_wxyz": (),
    "delta_to_absolute": ("reference", "wrap"),
    "absolute_to_delta": ("reference", "wrap"),
}


@dataclasses.dataclass(frozen=True)
class Selector:
    """A raw key and which of its dimensions are meant: "state", "state[0:7]", "state[-1]"."""

    text: str
    key: str
    part: slice

    @classmethod
    def parse(cls, text: str) -> typing.Self:
        """Raises ValueError for what is neither a key nor a key with an index or a range."""
        match = _SELECTOR.fullmatch(text)
        if match is None or (match["start"] == match["stop"] == match["colon"] == ""):
            raise ValueError(f"'{text}' is not a key, key[3] or key[0:7]")
        if match["start"] is None:
            return cls(text, text, slice(None))
        start = int(match["start"]) if match["start"] else None
        stop = int(match["stop"]) if match["stop"] else None
        if not match["colon"]:
            assert start is not None
            stop = start + 1 if start != -1 else None
        return cls(text, match["key"], slice(start, stop))


@configclass
class ConvertCfg(Cfg):
    """A change of some dimensions of a vector.

    scale               value * factor + offset
    gripper             linear, so that `open` becomes 1 and `closed` becomes 0
    xyzw_to_wxyz        the four named dimensions hold a quaternion; its real part comes first
    delta_to_absolute   state + value, both of the same frame
    absolute_to_delta   value - state, both of the same frame
    """

    kind: Kind
    """What is done."""
    names: list[str]
    """The dimensions it is done to, by their names."""
    factor: float = 1.0
    """scale: the value is multiplied by it."""
    offset: float = 0.0
    """scale: then added."""
    open: float | None = None
    """gripper: the recordings' value of an open gripper."""
    closed: float | None = None
    """gripper: the recordings' value of a closed one."""
    reference: list[str] = []
    """delta_to_absolute, absolute_to_delta: the state's dimension for each of `names`, after the
    state's own conversion.
    """
    wrap: bool = False
    """delta_to_absolute, absolute_to_delta: the values are angles in rad; results are brought into
    -pi..pi.
    """

    def __post_init__(self):
        if not self.names:
            raise ValueError(f"{self.kind}: names must not be empty")
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            known_fields = ("kind", "names", *_OWN_FIELDS[self.kind])
            default = [] if field.name == "reference" else field.default
            if field.name not in known_fields and getattr(self, field.name) != default:
                raise ValueError(
                    f"{self.kind} takes no '{field.name}'{did_you_mean('', known_fields)}"
                )
        ends = (self.open, self.closed)
        if self.kind == "gripper" and (None in ends or self.open == self.closed):
            raise ValueError("gripper needs open and closed, and they must differ")
        if self.kind == "xyzw_to_wxyz" and len(self.names) != 4:
            raise ValueError(f"xyzw_to_wxyz needs four names (w, x, y, z), not {self.names}")
        if "reference" in _OWN_FIELDS[self.kind] and len(self.reference) != len(self.names):
            raise ValueError(f"{self.kind}: reference must name one state dimension per name")


@configclass
class VectorCfg(Cfg):
    """A vector feature: which raw keys are concatenated into it, what its dimensions are, and how
    they are converted.
    """

    keys: list[str]
    """Raw keys, concatenated along the last axis; "key[0:7]" and "key[-1]" take a part."""
    names: list[str]
    """One name per dimension."""
    unit: str
    """Unit of the dimensions after conversion, in order, comma-separated where they differ."""
    low: list[float] | None = None
    """Smallest allowed value per dimension."""
    high: list[float] | None = None
    """Largest allowed value per dimension."""
    deltas: list[str] = []
    """Dimensions recorded as increments: when frames are left out to reach a lower fps, theirs are
    summed. Of the others the last left-out frame's value is taken.
    """
    convert: list[ConvertCfg] = []
    """What is done to the dimensions, in order."""

    def __post_init__(self):
        if not self.keys or not self.names:
            raise ValueError("keys and names must not be empty")
        self.selectors()
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise ValueError(f"names has '{twice[0]}' twice")
        for name in [
            *self.deltas,
            *(name for conversion in self.convert for name in conversion.names),
        ]:
            if name not in self.names:
                raise ValueError(f"no dimension '{name}'{did_you_mean(name, self.names)}")
        for bound in ("low", "high"):
            values = getattr(self, bound)
            if values is not None and len(values) != len(self.names):
                raise ValueError(f"{bound} has {len(values)} values for {len(self.names)} names")

    def selectors(self) -> list[Selector]:
        """The keys, taken apart."""
        return [Selector.parse(key) for key in self.keys]

    def summed(self) -> list[str]:
        """The dimensions that are increments as recorded."""
        converted = [
            conversion.names
            for conversion in self.convert
            if conversion.kind == "delta_to_absolute"
        ]
        return [*self.deltas, *(name for names in converted for name in names)]

    def vector(self) -> Vector:
        low = tuple(self.low) if self.low is not None else None
        high = tuple(self.high) if self.high is not None else None
        return Vector(tuple(self.names), self.unit, low, high)
