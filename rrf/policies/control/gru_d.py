"""GRU-D (Che et al., arXiv:1606.01865): a recurrent layer for values that are missing at times.

With the time d since the slow dimensions were seen, last values decay towards their mean, and the
hidden state towards 0 (equations 3 to 6):

    decay(d) = exp(-max(0, W d + b))
    x = m x + (1 - m) (decay_x(d) x_last + (1 - decay_x(d)) mean),    h = decay_h(d) h

A gated recurrent layer then reads the fast dimensions, x and m. The mean is 0, that of normalised
observations. The layer is torch's, which resets the hidden state after its matrix product; the
paper resets it before. The fast dimensions are never missing and do not decay.

In the paper, only the loss of the task trains the network. Here the decoders of `PredictiveEncoder`
do so, too; with fast_coef=0 and slow_coef=0 it is as in the paper.
"""

import torch
from torch import nn

from rrf.policies.control.belief_configs import GRUDCfg
from rrf.policies.control.predictive_encoder import PredictiveEncoder, Sensed


class GRUD(PredictiveEncoder):
    """Decays what it remembers with the time since it was seen."""

    def __init__(self, cfg: GRUDCfg, in_features: int):
        super().__init__(cfg, in_features)
        num_fast, num_slow, num_actions, *_ = self.sizes
        self.value_rate = nn.Linear(1, num_slow)
        self.belief_rate = nn.Linear(1, self.width)
        self.rnn = nn.GRUCell(num_fast + num_actions + num_slow + 1, self.width)

    def advance(self, sensed: Sensed, belief_bd: torch.Tensor) -> torch.Tensor:
        decayed = _decay(self.value_rate, sensed.age) * sensed.slow
        slow = torch.where(sensed.is_seen, sensed.slow, decayed)
        read = torch.cat([sensed.fast, sensed.action, slow, sensed.is_seen.float()], -1)
        return self.rnn(read, _decay(self.belief_rate, sensed.age) * belief_bd)


def _decay(rate: nn.Linear, age: torch.Tensor) -> torch.Tensor:
    return rate(age).relu().neg().exp()
