"""The replay: what it returns was really seen, in the places and sums worked out by hand."""

import pytest
import torch

from rrf.storage.replay import Replay, RowLayout
from rrf.storage.sequences import SequenceReplay

LAYOUT = RowLayout(actor_width=1, critic_width=None, num_actions=1)


def step(obs, rewards, terminated, ended, after) -> dict[str, torch.Tensor]:
    """One step of as many environments as `obs` has entries."""
    return {
        "observations": torch.tensor(obs).view(-1, 1),
        "actions": torch.tensor(obs).view(-1, 1) + 0.5,
        "rewards": torch.tensor(rewards),
        "terminated": torch.tensor(terminated),
        "ended": torch.tensor(ended),
        "next_observations": torch.tensor(after).view(-1, 1),
    }


def filled(num_transitions: int) -> Replay:
    """Two environments. The first is terminated in its second step; the second runs into its time
    limit in its third."""
    replay = Replay(LAYOUT, num_transitions, num_envs=2)
    no = [False, False]
    replay.write(**step([0.0, 100.0], [1.0, 10.0], no, no, [1.0, 101.0]))
    replay.write(**step([1.0, 101.0], [2.0, 20.0], [True, False], [True, False], [2.0, 102.0]))
    replay.write(**step([50.0, 102.0], [3.0, 30.0], no, [False, True], [51.0, 103.0]))
    replay.write(**step([51.0, 200.0], [4.0, 40.0], no, no, [52.0, 201.0]))
    return replay


def test_a_time_limit_is_bootstrapped_and_a_termination_is_not():
    replay = filled(8)
    steps, discounts = replay.gather_n_step(torch.arange(8), 1, gamma=0.9)
    assert steps.actor_obs.flatten().tolist() == [0, 100, 1, 101, 50, 102, 51, 200]
    assert steps.next_actor_obs.flatten().tolist() == [1, 101, 2, 102, 51, 103, 52, 201]
    assert steps.rewards.tolist() == [1, 10, 2, 20, 3, 30, 4, 40]
    assert steps.actions.flatten().tolist() == [0.5, 100.5, 1.5, 101.5, 50.5, 102.5, 51.5, 200.5]
    expected = [0.9, 0.9, 0.0, 0.9, 0.9, 0.9, 0.9, 0.9]
    assert discounts.tolist() == pytest.approx(expected)


def test_three_steps_are_summed_until_the_episode_or_the_memory_ends():
    replay = filled(12)
    replay.rows[8:] = torch.nan  # not written yet
    steps, discounts = replay.gather_n_step(torch.arange(8), 3, gamma=0.5)
    # Env 0: 1 + 0.5 * 2 then terminated; 2; 3 + 0.5 * 4 as far as is known; 4.
    # Env 1: 10 + 0.5 * 20 + 0.25 * 30; 20 + 0.5 * 30 to the time limit; 30; 40.
    assert steps.rewards.tolist() == [2.0, 27.5, 2.0, 35.0, 5.0, 30.0, 4.0, 40.0]
    assert steps.next_actor_obs.flatten().tolist() == [2, 103, 2, 103, 52, 103, 52, 201]
    expected = [0.0, 0.125, 0.0, 0.25, 0.25, 0.5, 0.5, 0.5]
    assert discounts.tolist() == pytest.approx(expected)
    assert steps.actor_obs.flatten().tolist() == [0, 100, 1, 101, 50, 102, 51, 200]


def test_a_full_ring_forgets_the_oldest_and_does_not_run_over_its_end():
    replay = filled(6)  # three steps of two environments: the first is gone
    assert len(replay) == 6
    steps, discounts = replay.gather_n_step(torch.arange(6), 2, gamma=0.5)
    # Row 0 and 1 now hold the fourth step, the newest.
    assert steps.actor_obs.flatten().tolist() == [51, 200, 1, 101, 50, 102]
    assert steps.rewards.tolist() == [4.0, 40.0, 2.0, 35.0, 5.0, 30.0]
    assert discounts.tolist() == pytest.approx([0.5, 0.5, 0.0, 0.25, 0.25, 0.5])


def test_giving_up_episodes_ends_them_as_a_time_limit():
    replay = filled(8)
    replay.cut()
    no = [False, False]
    replay.write(**step([7.0, 8.0], [5.0, 6.0], no, no, [9.0, 9.0]))
    steps, discounts = replay.gather_n_step(torch.tensor([6, 7]), 3, gamma=0.5)
    assert steps.rewards.tolist() == [4.0, 40.0]  # nothing of the step written after
    assert discounts.tolist() == [0.5, 0.5]


def test_a_privileged_critic_sees_its_own_columns():
    replay = Replay(RowLayout(1, 2, 1), 4, num_envs=1)
    replay.write(
        observations=torch.tensor([[1.0, 2.0, 3.0]]),
        actions=torch.tensor([[4.0]]),
        rewards=torch.tensor([5.0]),
        terminated=torch.tensor([False]),
        ended=torch.tensor([False]),
        next_observations=torch.tensor([[6.0, 7.0, 8.0]]),
    )
    one = replay.gather(torch.tensor([0]))
    assert one.actor_obs.tolist() == [[1.0]]
    assert one.critic_obs.tolist() == [[2.0, 3.0]]
    assert one.next_actor_obs.tolist() == [[6.0]]
    assert one.next_critic_obs.tolist() == [[7.0, 8.0]]


def test_memory_is_stated_in_bytes_and_limited():
    layout = RowLayout(actor_width=17, critic_width=None, num_actions=6)
    replay = Replay(layout, 1000, num_envs=1)
    assert replay.num_bytes == 1000 * (17 + 6 + 3 + 17) * 4 == replay.rows.nbytes
    with pytest.raises(ValueError, match=r"172 bytes each.*allowed: 0.1 GiB.*at most 624,268"):
        Replay(layout, 1_000_000, num_envs=1, memory_limit_gib=0.1)


def test_a_replay_smaller_than_one_step_is_refused():
    with pytest.raises(ValueError, match=r"replay_size is 3, allowed: at least one .* 4"):
        Replay(LAYOUT, 3, num_envs=4)


def numbered(capacity: int, steps: int, stride: int = 2, length: int = 3) -> SequenceReplay:
    """One environment whose observation is the number of the step, and so is its memory; every
    fourth step ends an episode."""
    shapes = {"actor": (1, 2)}
    replay = SequenceReplay(LAYOUT, capacity, 1, length, stride, shapes)
    for t in range(steps):
        memory = torch.full((1, 1, 2), float(t))
        is_end = [t % 4 == 3]
        number = float(t)
        replay.write({"actor": memory}, **step([number], [number], [False], is_end, [number + 1]))
    return replay


def test_sequences_carry_the_memory_of_their_first_step_and_know_where_episodes_begin():
    replay = numbered(capacity=100, steps=10)
    assert replay.num_places == 4  # begin at 0, 2, 4, 6: the last ends with step 8
    found = replay.gather(torch.arange(4), torch.zeros(4, dtype=torch.int64))
    assert found.steps.actor_obs[..., 0].T.tolist() == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 8]]
    assert found.memories["actor"][0].tolist() == [[0, 0], [2, 2], [4, 4], [6, 6]]
    assert found.starts.T.tolist() == [
        [True, False, False],
        [False, False, True],
        [True, False, False],
        [False, False, True],
    ]


def test_a_full_ring_of_sequences_offers_only_what_is_still_whole():
    replay = numbered(capacity=8, steps=13)
    # Steps 5 to 12 are there; of step 5 it is unknown whether it began an episode.
    generator = torch.Generator().manual_seed(0)
    found = replay.sample(200, generator)
    first = found.steps.actor_obs[0, :, 0]
    assert sorted(set(first.tolist())) == [6.0, 8.0, 10.0]
    assert torch.equal(found.memories["actor"][0, :, 0], first)
    assert torch.equal(found.steps.actor_obs[2, :, 0], first + 2)
    assert torch.equal(found.starts[0], first % 4 == 0)


def test_a_replay_of_sequences_continues_from_its_state():
    replay = numbered(capacity=8, steps=13)
    tensors, facts = replay.state()
    again = SequenceReplay(LAYOUT, 8, 1, 3, 2, {"actor": (1, 2)})
    again.load_state({name: value.clone() for name, value in tensors.items()}, facts)
    for _ in range(2):
        one, two = (r.sample(20, torch.Generator().manual_seed(3)) for r in (replay, again))
        assert torch.equal(one.steps.rows, two.steps.rows)
        assert torch.equal(one.memories["actor"], two.memories["actor"])
        for r in (replay, again):
            memory = {"actor": torch.full((1, 1, 2), 13.0)}
            r.write(memory, **step([13.0], [13.0], [False], [False], [14.0]))


def test_a_replay_that_holds_no_sequence_is_refused():
    with pytest.raises(ValueError, match="allowed: more than 40"):
        SequenceReplay(LAYOUT, 40, 1, length=32, stride=8, memory_shapes={})
