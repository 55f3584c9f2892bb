"""What a round played, and its replay."""

import random

import pytest

from rrf.runners.vla_rl.job_sources import GroupRound
from rrf.runners.vla_rl.workload import Replay, Workload
from tests.runners.vla_rl.test_job_sources import Played, finish, states


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_plays_the_same_episodes_in_any_order(seed, monkeypatch):
    monkeypatch.setattr(Played, "__len__", lambda self: 1 + self.job.id % 7, raising=False)

    def outcome(group, member):
        return random.Random(1000 * group + member).random() < 0.3

    source = finish(GroupRound(states(), 5, 8, 40, 2, 4, expected_share=0.6), outcome, seed)
    replay = Replay(Workload.of(source))
    order, waiting, played = random.Random(seed), [], {}
    while waiting := waiting + replay.take():
        job = waiting.pop(order.randrange(len(waiting)))
        played[job.id] = replay.chunks_of(job)
        replay.report(job)
    assert played == {episode.job.id: len(episode) for episode in source.episodes}
    assert Workload.of(source).num_chunks == sum(played.values())
