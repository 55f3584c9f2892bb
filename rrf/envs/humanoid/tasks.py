"""What the G1 is told to do at its table: instructions, made of a verb and what it is done to."""

import dataclasses
import typing
from collections.abc import Mapping

Verb = typing.Literal["walk", "touch", "push", "pick", "place"]
COLORS = ("red", "green", "blue", "yellow")
SHAPES = ("cube", "cylinder", "ball")
DIRECTIONS = ("left", "right", "forward")


@dataclasses.dataclass(frozen=True)
class Task:
    """One instruction. What a verb does not need is empty."""

    verb: Verb
    color: str = ""
    shape: str = ""
    hand: str = ""
    """left or right: the hand that does it, and on whose side of the table the object is."""
    direction: str = ""
    """Where to push to, as seen by the robot."""
    plate: str = ""
    """Colour of the plate to place it on."""

    @property
    def object(self) -> str:
        """Name of the object that it is about, e.g. red_cube; empty for none."""
        return f"{self.color}_{self.shape}" if self.shape else ""

    @property
    def name(self) -> str:
        """E.g. touch-red-cube-left."""
        if self.verb == "walk":
            return "walk-to-table"
        last = {"touch": self.hand, "push": self.direction, "place": self.plate}.get(self.verb)
        parts = [self.verb, self.color, self.shape, *([last] if last else [])]
        return "-".join(parts)

    @property
    def instruction(self) -> str:
        """What the robot is told."""
        thing = f"the {self.color} {self.shape}"
        return {
            "walk": "walk up to the table",
            "touch": f"touch {thing} with the {self.hand} hand",
            "push": f"push {thing} {_TO.get(self.direction, '')}",
            "pick": f"pick up {thing}",
            "place": f"place {thing} on the {self.plate} plate",
        }[self.verb]


_TO = {"left": "to the left", "right": "to the right", "forward": "forward"}


def _all() -> Mapping[str, Task]:
    found = [Task("walk")]
    for color in COLORS:
        for shape in SHAPES:
            found += [Task("touch", color, shape, hand=hand) for hand in ("left", "right")]
        found += [Task("push", color, "cube", direction=direction) for direction in DIRECTIONS]
        found += [Task("pick", color, shape) for shape in SHAPES]
        found += [
            Task("place", color, shape, plate=plate)
            for shape in ("cube", "cylinder")
            for plate in COLORS
            if plate != color
        ]
    return {task.name: task for task in found}


TASKS = _all()
"""Name -> task: 73, of which a protocol or a dataset names those that it uses."""

PICK_AND_PLACE = (
    *("place-red-cube-green", "place-red-cube-blue", "place-green-cube-blue"),
    *("place-green-cube-yellow", "place-blue-cube-yellow", "place-blue-cube-red"),
    *("place-yellow-cube-red", "place-yellow-cube-green"),
    *("place-red-cylinder-blue", "place-red-cylinder-yellow", "place-green-cylinder-red"),
    *("place-green-cylinder-yellow", "place-blue-cylinder-green", "place-yellow-cylinder-red"),
)
"""The 14 of them that are the package humanoid-psi0: each cube and cylinder, and each plate."""
