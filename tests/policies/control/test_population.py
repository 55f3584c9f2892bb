import pytest
import torch
from tensordict import TensorDict

from rrf.config import configclass
from rrf.policies import CategoricalActorCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.policies.control.configs import MemoryCfg
from rrf.policies.control.population import MEMBER
from rrf.runners.checkpoints.onnx_export import export
from tests.algorithms.on_policy import populations


def acting_as(policy, x, member):
    joined = torch.cat([x, torch.full_like(x[..., :1], float(member))], -1)
    return policy.actor.distribution(policy.actor(joined))


@pytest.mark.parametrize("std_per_member", [True, False])
@pytest.mark.parametrize("normalizes", [True, False])
def test_the_deployed_policy_acts_as_the_leader(std_per_member, normalizes):
    actor_cfg = StateIndStdActorCfg(
        backbone_cfg=populations.MLP, obs_normalization=normalizes, init_std=0.3
    )
    policy = populations.population(std_per_member=std_per_member, actor_cfg=actor_cfg)
    x = 3 + 2 * torch.randn(50, 2)
    if normalizes:
        policy.actor.normalizer.update(torch.cat([x, torch.ones(50, 1)], -1))
    deployed = policy.deployable()
    observations = TensorDict({"policy": x}, batch_size=[50])
    found = deployed.act(observations)
    torch.testing.assert_close(found, acting_as(policy, x, 0).mode)
    assert not torch.allclose(found, acting_as(policy, x, 1).mode)
    plain = deployed.actor
    torch.testing.assert_close(
        plain.distribution(plain(x)).std, torch.full((50, 1), 0.3), rtol=1e-6, atol=0
    )


def test_the_leader_is_exported_like_any_policy(tmp_path):
    pytest.importorskip("onnxruntime")
    assert export(populations.population().deployable().actor, tmp_path / "policy.onnx") < 1e-5


def test_members_have_their_own_standard_deviations():
    policy = populations.population()
    with torch.no_grad():
        policy.actor.backbone.log_std.copy_(torch.tensor([[0.0], [1.0], [40.0]]))
    policy.actor.constrain()
    x = torch.zeros(1, 2)
    stds = [acting_as(policy, x, member).std.item() for member in range(3)]
    assert stds == pytest.approx([1.0, 2.718282, 10.0])  # the last at its limit
    assert policy.actor.exploration() == pytest.approx(
        {"policy/std": 13.718282 / 3, "policy/std_leader": 1.0}
    )


def test_latents_are_learned_or_bred():
    learned = populations.population(learn_latents=True)
    assert "actor.backbone.latents" in dict(learned.named_parameters())
    bred = populations.population(learn_latents=False)
    assert "actor.backbone.latents" not in dict(bred.named_parameters())
    assert "actor.backbone.latents" in bred.state_dict()
    bred.set_latents(torch.ones(3, 4))
    assert torch.equal(bred.critic.backbone.latents, torch.ones(3, 4))


def test_one_member_is_no_population():
    single = populations.population(num_members=1)
    assert "actor.backbone.layers.0.weight" in single.state_dict()
    assert MEMBER not in single.actor.groups
    assert single.deployable().actor is single.actor


@configclass
class DeepCriticCfg(VNetworkCfg):
    """A critic of somebody else's."""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"actor_cfg": CategoricalActorCfg()}, "but actor_cfg is CategoricalActorCfg"),
        ({"actor_cfg": StateIndStdActorCfg(use_log_std=False)}, "with use_log_std"),
        ({"critic_cfg": DeepCriticCfg()}, "but critic_cfg is DeepCriticCfg"),
        ({"critic_cfg": VNetworkCfg(memory=MemoryCfg())}, "critic_cfg.memory=null"),
        ({"num_members": 0}, "num_members is 0"),
    ],
)
def test_what_a_population_cannot_share_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        populations.population(**settings)
