"""Advantages of recorded episodes: RECAP of pi*0.6 (arXiv:2511.14759), sections IV-A and IV-B.

    r_t = 0 from the first success on, -C at the end of an episode without success, else -1
    R_t = sum of r from t to the end,                       divided by the task's longest episode
    A_t = r_t + ... + r_{t+n-1} + V(s_{t+n}) - V(s_t),      positive if among the highest of a task

What differs: V is a small network of state and instruction that is fitted to returns by least
squares (RECAP: a vision-language model with a distribution over 201 returns), and the value of an
episode comes from a network that has not seen it (cross-fitting, arXiv:1608.00060), because a
network that has seen an episode knows its return, and the advantage would vanish.

Legend: T frames of an episode, N frames, E episodes, I inputs of the network.
"""

import numpy as np
import torch

from rrf.networks.configs import plain_mlp
from rrf.networks.mlp import MLP

_NETWORK = plain_mlp([64, 64], "GELU")
_STEPS, _ROWS, _TEST_INTERVAL, _LR, _WEIGHT_DECAY = 500, 256, 25, 3e-3, 1e-2


def success_rewards(success_t: np.ndarray, failure_cost: float) -> np.ndarray:
    """The reward of each step, float64 [T], from whether the task was solved after it, bool [T]."""
    reward_t = np.where(np.logical_or.accumulate(success_t), 0.0, -1.0)
    if not success_t.any():
        reward_t[-1] = -failure_cost
    return reward_t


def returns_to_go(reward_t: np.ndarray) -> np.ndarray:
    """The sum of this and all later rewards, float64 [T]."""
    return np.cumsum(reward_t[::-1], dtype=np.float64)[::-1]


def advantages(return_t: np.ndarray, value_t: np.ndarray, horizon: int | None) -> np.ndarray:
    """The n-step return minus the value, [T].

    Args:
        return_t: Returns to go.
        value_t: Value estimates. After the end of the episode, return and value are 0.
        horizon: Rewards before the value takes over; None for all.
    """
    if horizon is None:
        return return_t - value_t
    later = np.zeros(len(return_t))
    later[:-horizon] = (value_t - return_t)[horizon:]
    return return_t + later - value_t


def highest(value_n: np.ndarray, group_n: np.ndarray, fraction: float) -> np.ndarray:
    """Whether a value is among the highest of its group, bool [N]; of equal values, all are."""
    is_high_n = np.zeros(len(value_n), bool)
    for group in np.unique(group_n):
        rows = group_n == group
        lowest = np.quantile(value_n[rows], 1 - fraction, method="higher")
        is_high_n[rows] = value_n[rows] >= lowest
    return is_high_n


def folds(instruction_e: np.ndarray, num_folds: int, seed: int) -> np.ndarray:
    """A random fold for each episode, int64 [E]; episodes of an instruction are spread evenly."""
    shuffled = np.random.default_rng(seed).permutation(len(instruction_e))
    order = shuffled[np.argsort(instruction_e[shuffled], kind="stable")]
    fold_e = np.empty(len(order), np.int64)
    fold_e[order] = np.arange(len(order)) % num_folds
    return fold_e


def values_of_others(
    inputs_ni: np.ndarray, return_n: np.ndarray, fold_n: np.ndarray, seed: int
) -> np.ndarray:
    """The value of each frame by a network fitted to the frames of other folds, float64 [N].

    Of the other folds, the next one is not fitted to either: it tells when to stop. So at least
    three folds are needed. The result depends on the arguments alone (on a CPU, with the same
    number of threads).
    """
    value_n, numbers = np.empty(len(return_n)), np.unique(fold_n)
    for fold, following in zip(numbers, np.roll(numbers, -1), strict=True):
        asked_n, test_n = fold_n == fold, fold_n == following
        fit_n = ~(asked_n | test_n)
        mean, scale = return_n[fit_n].mean(), return_n[fit_n].std() + 1e-8
        target_n = torch.from_numpy(((return_n - mean) / scale).astype(np.float32))
        predicted_n = _fitted(
            torch.from_numpy(inputs_ni.astype(np.float32)), target_n, fit_n, test_n, seed
        )
        value_n[asked_n] = predicted_n.double().numpy()[asked_n] * scale + mean
    return value_n


def _fitted(
    inputs_ni: torch.Tensor,
    target_n: torch.Tensor,
    fit_n: np.ndarray,
    test_n: np.ndarray,
    seed: int,
) -> torch.Tensor:
    """Predictions for all frames, of the network that is best on the frames of the test."""
    known = torch.from_numpy(np.flatnonzero(fit_n))
    test = torch.from_numpy(test_n)
    best_n, least = torch.zeros(len(target_n)), target_n[test].square().mean()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = MLP(_NETWORK, inputs_ni.shape[1], 1)
        optimizer = torch.optim.AdamW(network.parameters(), _LR, weight_decay=_WEIGHT_DECAY)
        for step in range(1, _STEPS + 1):
            rows = known[torch.randint(len(known), (min(_ROWS, len(known)),))]
            loss = (network(inputs_ni[rows])[:, 0] - target_n[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % _TEST_INTERVAL:
                continue
            with torch.no_grad():
                predicted_n = network(inputs_ni)[:, 0]
            error = (predicted_n - target_n)[test].square().mean()
            if error < least:
                best_n, least = predicted_n, error
    return best_n
