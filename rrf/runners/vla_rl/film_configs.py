"""The config of the videos of training episodes. No torch here."""

from rrf.config import Cfg, configclass, require_at_least_one


@configclass
class FilmCfg(Cfg):
    """Videos of played episodes, side by side: of training and of validation, whenever a run
    validates."""

    tiles: int | None = None
    """Episodes side by side, at most; all tasks take turns. null: one of each task."""
    numbers: bool = True
    """Whether step (in actions), reward r of the last chunk and return R of the environment stand
    below each."""
    fps: int = 4
    """Chunks per second of video."""

    def __post_init__(self):
        require_at_least_one(self, "tiles", "fps")
