"""What an action head sees of a batch, if it reads more than one feature vector per observation.

Legend: B rows, D width of the state.
"""

import dataclasses
import functools

import torch

from rrf.data.schema import Observation
from rrf.networks.vlm.backbone import Backbone, Features, View


@dataclasses.dataclass
class Context:
    """A view, the backbone that can be asked about it, and what the robot reports of itself."""

    backbone: Backbone
    view: View
    state: torch.Tensor  # float32 [B, D], normalised
    embodiment: torch.Tensor  # int64 [B], the number of each row's embodiment

    def __len__(self) -> int:
        return len(self.view)

    @functools.cached_property
    def features(self) -> Features:
        """The backbone's features of the view; computed once, however many heads ask."""
        return self.backbone(self.view)


@dataclasses.dataclass
class SeenObservation(Observation):
    """An observation whose images a frozen backbone has seen before: it holds the features instead
    of the images."""

    features: Features | None = None
