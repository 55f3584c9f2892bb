"""What each robot sees and does, of a policy that is trained on several. No torch here."""

import typing
from collections.abc import Sequence

from rrf.config import Cfg, configclass
from rrf.data.schema import Schema


class Sizes(typing.Protocol):
    """The sizes that a policy, or one of its robots, shares with a dataset."""

    image_size: tuple[int, int]
    state_dim: int
    action_dim: int


def misfits(
    where: str, cfg: Sizes, cameras: Sequence[str], schema: Schema, dataset: str
) -> list[str]:
    """Every difference between what `where` in a config says and what its dataset has."""
    pairs = {
        "image_size": (tuple(cfg.image_size), tuple(schema.image_size)),
        "state_dim": (cfg.state_dim, len(schema.state.names)),
        "action_dim": (cfg.action_dim, len(schema.action.names)),
    }
    wrong = [
        f"{where}.{name} is {value}, but {dataset} has {dataset_value}"
        for name, (value, dataset_value) in pairs.items()
        if value != dataset_value
    ]
    have = ", ".join(schema.cameras) or "none"
    return wrong + [
        f"{where}.cameras names '{camera}', but {dataset} has {have}"
        for camera in cameras
        if camera not in schema.cameras
    ]


@configclass
class RobotCfg(Cfg):
    """One of the robots (embodiments) of a policy. What is left open is its datasets'."""

    cameras: list[str | None] = []
    """Its camera for each image of the policy, in their order; null where it has none. Images at
    the end may be left out. Empty: the dataset's cameras."""
    image_size: tuple[int, int] = (0, 0)
    """Height and width of its recorded images in pixels. 0: the dataset's."""
    state_dim: int = 0
    """Dimensions of its state. 0: the dataset's."""
    action_dim: int = 0
    """Dimensions of its action. 0: the dataset's."""

    @property
    def own_cameras(self) -> list[str]:
        """The cameras that it has, in the policy's order."""
        return [camera for camera in self.cameras if camera is not None]

    def fitted(self, tag: str, schema: Schema) -> typing.Self:
        """A copy in which the dataset of robot `tag` fills in what is not given.

        Raises:
            ValueError: If what is given differs from the dataset.
        """
        robot = self.replace(
            cameras=self.cameras or list(schema.cameras),
            image_size=self.image_size if min(self.image_size) else schema.image_size,
            state_dim=self.state_dim or len(schema.state.names),
            action_dim=self.action_dim or len(schema.action.names),
        )
        where = f"policy.robots.{tag}"
        wrong = misfits(where, robot, robot.own_cameras, schema, "its dataset")
        if not robot.own_cameras:
            wrong.append(f"{where} has no camera, but the policy sees images")
        if wrong:
            raise ValueError("; ".join(wrong))
        return robot

    def __post_init__(self):
        if self.cameras and not self.own_cameras:
            raise ValueError(f"cameras is {self.cameras}, allowed: at least one camera, or []")
        doubled = next((c for c in self.own_cameras if self.own_cameras.count(c) > 1), None)
        if doubled is not None:
            raise ValueError(f"cameras names '{doubled}' more than once")
        if min(self.state_dim, self.action_dim) < 0:
            raise ValueError(
                f"state_dim is {self.state_dim} and action_dim is {self.action_dim}, allowed: 1 or "
                "more, or 0 for the dataset's"
            )
