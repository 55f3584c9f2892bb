"""Weights of a policy for one that sees more: a robot that walks on flat ground gets a height scan.

Terms of observations that the first policy does not have get weights of zero in the first layers of
actor and critic. So the second one begins by doing what the first did, and learns to look.

Legend: N environments, O joined observation width.
"""

from collections.abc import Iterator, Mapping

import torch
from tensordict import TensorDict

from rrf.envs.control_env import Interface
from rrf.policies.control.actor_critic import Deployed
from rrf.policies.control.state_network import StateNetwork

_STEPS_REMEMBERED = 100
_COUNT = "normalizer.count"


def widened(
    weights: Mapping[str, torch.Tensor],
    policy: Deployed,
    before: Interface,
    now: Interface,
    observations: TensorDict,
) -> dict[str, torch.Tensor]:
    """The weights of a policy of `before` in the shapes of `policy`, which is one of `now`.

    Normalisers begin with the moments of `observations` [N] in the new columns. They count the old
    columns as 100 steps of all environments at most, so that they soon know the new ones.

    Where a network does not see all that it saw before, or where an interface names no terms, the
    weights are returned as they are.
    """
    found = dict(weights)
    for name, network in policy.named_modules():
        if not isinstance(network, StateNetwork):
            continue
        old, new = (list(_columns(interface, network.groups)) for interface in (before, now))
        if not old or len(new) != network.width or not set(old) < set(new):
            continue
        places = [new.index(column) for column in old]
        fresh = _moments(network.read(observations))
        for key, own in network.state_dict().items():
            value = found.get(f"{name}.{key}")
            if value is None:
                continue
            if key == _COUNT:
                found[f"{name}.{key}"] = value.clamp(max=_STEPS_REMEMBERED * len(observations))
            elif own.shape[-1:] == (len(new),) and value.shape == (*own.shape[:-1], len(old)):
                wide = fresh[key].clone() if key in fresh else torch.zeros_like(own)
                wide[..., places] = value.to(wide)
                found[f"{name}.{key}"] = wide
    return found


def _moments(x_no: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a network's normaliser would hold after a batch [N, O]."""
    var, mean = torch.var_mean(x_no, dim=0, unbiased=False)
    return {"normalizer.mean": mean, "normalizer.var": var, "normalizer.std": var.sqrt()}


def _columns(interface: Interface, groups: list[str]) -> Iterator[tuple[str, str, int]]:
    for group in groups:
        for term, width in interface.observation_terms.get(group, {}).items():
            yield from ((group, term, number) for number in range(width))
