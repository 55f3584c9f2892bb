"""Calibration of CQL by recorded returns (Cal-QL, arXiv:2303.05479)."""

import math

import pytest
import torch

from rrf.algorithms.offline.cql import proposed
from rrf.storage.dataset_replay import DatasetReplay
from rrf.storage.replay import Replay, RowLayout
from tests.algorithms.offline.corridor import ALGORITHMS, record, run_cfg


def row(reward: float, ended: bool) -> list[float]:
    """Of one observation and one action: both 0."""
    return [0.0, 0.0, reward, 0.0, float(ended), 0.0]


def test_returns_end_with_their_episode():
    layout = RowLayout(1, None, 1)
    rows = torch.tensor([row(1, False), row(2, False), row(4, True), row(8, False), row(16, True)])
    replay = DatasetReplay(rows, Replay(layout, 4, 1), gamma=0.5)
    found = replay.returns_to_go(torch.tensor([4, 0, 1, 2, 3, 5]))
    assert found.tolist() == [16, 1 + 1 + 1, 2 + 2, 4, 8 + 8, -math.inf]


@pytest.mark.parametrize("uses_importance", [True, False])
def test_only_values_of_the_policy_are_calibrated(tmp_path, uses_importance):
    algorithm = ALGORITHMS["cql"][0].replace(
        calibrates=True, uses_importance=uses_importance, num_actions=2, batch_size=8
    )
    walks = record(tmp_path / "walks", 20)
    cfg = run_cfg("cql", walks, algorithm=algorithm, reward_shift=1.6)
    runner = cfg.build(tmp_path / "run")
    cql, critic, actor = runner.algorithm, runner.policy.critic, runner.policy.actor
    ((batch, noise),) = cql.batches(1)
    steps, returns = batch.steps, cql.replay.returns_to_go(batch.rows)
    with torch.no_grad():
        seen = critic.normalized(steps.critic_obs)
        q = critic(seen, steps.actions)
        above = torch.zeros(2, 8, 0)
        for name, obs in (("proposals", steps.actor_obs), ("next_proposals", steps.next_actor_obs)):
            actions, log_prob = proposed(actor.distribution(actor(obs)), getattr(noise, name))
            for number in range(2):
                value = critic(seen, actions[:, number])
                assert (value < returns).any()
                value = value.maximum(returns)
                value = value - log_prob[:, number] if uses_importance else value
                above = torch.cat([above, value.unsqueeze(-1)], -1)
        for number in range(2):
            value = critic(seen, noise.uniform[:, number])
            value = value + math.log(2) if uses_importance else value
            above = torch.cat([above, value.unsqueeze(-1)], -1)
        if not uses_importance:
            above = torch.cat([above, q.unsqueeze(-1)], -1)
        expected = (torch.logsumexp(above, -1) - q).mean()
    found = cql.learn(batch, noise)["value/gap"]
    torch.testing.assert_close(found, expected)
