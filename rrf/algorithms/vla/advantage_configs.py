"""The config of advantage-conditioned training. No torch here."""

import typing

from rrf.config import Cfg, configclass, require_not_negative


@configclass
class AdvantageCfg(Cfg):
    """Tell the policy, in its prompt, which recorded actions were better than usual (RECAP,
    arXiv:2511.14759)."""

    source: typing.Literal["success", "reward", "score", "label"] = "success"
    """Where the advantage comes from. success: the return is minus the steps until next.success.
    reward: it is the sum of next.reward. score: it is by how much a reward model's score rises
    (`scores`). label: no return; `label` says what is positive."""
    scores: list[str] = []
    """For source=score: the files that `rrf data score` wrote, one for each dataset."""
    label: str | None = None
    """A feature of the dataset, or a column of its episode table, true where the action is good.
    With the other sources, these frames (e.g. corrections by a human) are positive whatever their
    return."""
    positive_fraction: float = 0.3
    """Fraction of the frames of each instruction that is positive: those with the highest
    advantage."""
    horizon: int | None = None
    """Steps whose rewards count before the value estimate takes over (n-step return). null: all
    steps of the episode."""
    failure_penalty: float = 1.0
    """For source=success: what the last step of a failed episode costs, in lengths of the longest
    episode with the same instruction."""
    num_folds: int = 5
    """The value of an episode is estimated by a network that was fitted to episodes of other
    folds."""
    dropout: float = 0.3
    """Probability that a training prompt does not tell the advantage, so that the policy can be
    used without it."""

    def __post_init__(self):
        if self.source == "label" and self.label is None:
            raise ValueError(
                "source is label, but label is null; name a boolean feature of the dataset, or a "
                "column of its episode table"
            )
        if (self.source == "score") != bool(self.scores):
            raise ValueError(
                f"source is {self.source} and scores is {self.scores}; source=score needs the "
                "files that rrf data score wrote, and no other source reads them"
            )
        if not 0 < self.positive_fraction < 1:
            raise ValueError(
                f"positive_fraction is {self.positive_fraction}, allowed: between 0 and 1"
            )
        if self.horizon is not None and self.horizon < 1:
            raise ValueError(f"horizon is {self.horizon}, allowed: 1 or more, or null")
        require_not_negative(self, "failure_penalty")
        if self.num_folds < 3:
            raise ValueError(f"num_folds is {self.num_folds}, allowed: 3 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, allowed: from 0 to below 1")
