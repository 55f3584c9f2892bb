"""Slices of a replay lie within one episode."""

import pytest
import torch

from rrf.storage.replay import RowLayout, SliceReplay


def filled(lengths: list[int], num_steps: int, size: int) -> SliceReplay:
    """Two environments; the reward of a step is its number, times -1 in the second environment.

    The first one's episodes have `lengths`, the second one's never end.
    """
    replay = SliceReplay(RowLayout(1, None, 1), 2 * size, 2)
    ends = set(torch.tensor(lengths).cumsum(0).tolist())
    for step in range(1, num_steps + 1):
        numbers = torch.tensor([float(step), -float(step)])
        replay.write(
            observations=numbers.unsqueeze(1),
            actions=torch.zeros(2, 1),
            rewards=numbers,
            terminated=torch.zeros(2, dtype=torch.bool),
            ended=torch.tensor([step in ends, False]),
            next_observations=numbers.unsqueeze(1),
        )
    return replay


def starts(replay: SliceReplay, length: int) -> set[float]:
    """Where slices begin; each of them must be consecutive."""
    rewards = replay.sample_slices(length, 400, torch.Generator().manual_seed(0)).rewards
    steps = torch.arange(length).unsqueeze(1)
    assert torch.equal(rewards, rewards[0] + steps * rewards[0].sign())
    return set(rewards[0].tolist())


def test_only_the_last_step_of_a_slice_may_end_an_episode():
    # Steps 1 to 4 and 5 to 9 are the episodes, 10 belongs to a third one.
    found = starts(filled([4, 5], 10, size=20), 3)
    assert found == {1, 2, 5, 6, 7} | {-float(n) for n in range(1, 9)}


def test_slices_do_not_cross_the_newest_step_of_a_full_ring():
    # Of 23 steps the last 8 are kept: 16 to 23, stored at the places 7, 0, 1, ...
    found = starts(filled([], 23, size=8), 3)
    assert found == {float(s * n) for n in range(16, 22) for s in (1, -1)}


def test_no_episode_that_is_long_enough():
    replay = filled([1] * 9, 9, size=20)
    replay.rows[1::2, replay.ended_column] = 1.0
    with pytest.raises(ValueError, match="of 18 stored transitions hardly any begins 2 steps"):
        replay.sample_slices(2, 4, torch.Generator())
