"""Compiled code learns for exactly the classes that it was written for; all others learn with their
own code.
"""

import logging
import typing

import pytest
import torch
from torch import nn

from rrf.algorithms import AMPCfg, GAILCfg, ModelPPOCfg, PPOCfg, RNDCfg
from rrf.algorithms.model_based.configs import MBPOCfg
from rrf.algorithms.off_policy.configs import SACCfg
from rrf.algorithms.off_policy.sac import SAC
from rrf.algorithms.offline.configs import IQLCfg
from rrf.algorithms.offline.iql import IQL
from rrf.algorithms.on_policy.configs import SymmetryCfg
from rrf.algorithms.on_policy.extension import Extension
from rrf.algorithms.on_policy.ppo import PPO
from rrf.compiled import acceleration
from rrf.compiled import iql as compiled_iql
from rrf.compiled import ppo as compiled_ppo
from rrf.compiled import sac as compiled_sac
from rrf.compiled.acceleration import accelerate
from rrf.config import locate
from rrf.envs.control_env import Interface
from rrf.networks import plain_mlp
from rrf.networks.mlp import MLP
from rrf.policies import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.policies.control.actor_critic import DiagonalGaussian, GaussianActor, VNetwork
from rrf.policies.control.batched_critics import QNetwork
from rrf.policies.control.off_policy_configs import ActorQPackCfg, QNetworkCfg, SACActorCfg
from rrf.policies.control.offline_configs import BoundedActorCfg, IQLPackCfg
from tests.compiled import test_iql, test_ppo, test_sac

needs_compiler = pytest.mark.skipif(
    compiled_ppo.library() is None, reason="this machine has no C compiler"
)
_FACE = Interface({"policy": 5}, num_actions=2)
SYMMETRY = SymmetryCfg(mirrors=f"{__name__}:turned")
_ELU, _RELU = plain_mlp([16], "ELU"), plain_mlp([16], "ReLU")


def turned(interface: Interface) -> dict:
    """A mirror that turns every sign."""
    return dict.fromkeys(("policy", "actions"), torch.neg)


class BoldPPO(PPO):
    def distribution_in(self, x_so) -> typing.Any:
        there: typing.Any = super().distribution_in(x_so)
        return DiagonalGaussian(3 * there.mean, there.std)


class SmallPPO(PPO):
    def penalty(self, batch, distribution):
        size = distribution.mode.square().mean()
        return size, {"loss/size": size.detach()}


class SteepActor(GaussianActor):
    def forward(self, x):
        return 2 * super().forward(x)


class WideActor(GaussianActor):
    def distribution(self, outputs):
        return DiagonalGaussian(outputs, super().distribution(outputs).std * 2)


class DoubtfulCritic(VNetwork):
    def value(self, x):
        return 0.5 * super().value(x)


class SteepMLP(MLP):
    def forward(self, x_bi):
        return 2 * super().forward(x_bi)


class Sizes(Extension):
    def penalty(self, batch, distribution):
        return distribution.mode.square().mean(), {}


def pack() -> ActorCriticPackCfg:
    return ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=_ELU), critic_cfg=VNetworkCfg(backbone_cfg=_ELU)
    )


def ppo(kind: type[PPO] = PPO, **changes) -> PPO:
    torch.manual_seed(0)
    cfg = PPOCfg(num_mini_batches=2, learning_rate=3e-3, schedule="fixed", **changes)
    return kind(cfg, pack().build(_FACE), 4, 8, torch.Generator().manual_seed(0))


def with_another(name: str, kind: type) -> PPO:
    """PPO whose actor or critic is of a subclass."""
    made = ppo()
    network = getattr(made.policy, name)
    network.__class__ = kind
    return made


def with_another_backbone() -> PPO:
    made = ppo()
    made.policy.actor.backbone.__class__ = SteepMLP
    return made


def with_an_extension() -> PPO:
    made = ppo()
    made.extensions["sizes"] = Sizes()
    return made


def with_its_own_method() -> PPO:
    made = ppo()
    made.entropy_bonus = lambda batch, entropy: 10 * entropy.mean()
    return made


def with_a_hook() -> PPO:
    made = ppo()
    made.policy.actor.register_forward_hook(lambda *call: 2 * call[-1])
    return made


def with_weight_decay() -> PPO:
    made = ppo()
    parameters, rate = made.policy.actor.parameters(), made.learning_rate
    made.actor_optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.5, fused=True)
    return made


def with_a_frozen_layer() -> PPO:
    made = ppo()
    made.policy.actor.backbone.layers[0].requires_grad_(False)
    return made


OTHERS = {
    "distribution_in": lambda: ppo(BoldPPO),
    "penalty": lambda: ppo(SmallPPO),
    "actor": lambda: with_another("actor", SteepActor),
    "distribution": lambda: with_another("actor", WideActor),
    "critic": lambda: with_another("critic", DoubtfulCritic),
    "backbone": with_another_backbone,
    "extension": with_an_extension,
    "method of the instance": with_its_own_method,
    "hook": with_a_hook,
    "optimizer": with_weight_decay,
    "frozen layer": with_a_frozen_layer,
}


def learned(algorithm: PPO) -> dict[str, torch.Tensor]:
    """The weights after an update on drawn samples."""
    accelerate(algorithm)
    (algorithm.compiled or algorithm).learn(test_ppo.drawn_samples(algorithm, 1))
    return algorithm.policy.state_dict()


def are_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], value) for name, value in second.items())


@needs_compiler
@pytest.mark.parametrize("which", OTHERS)
def test_whatever_is_not_ppo_itself_trains_with_its_own_code(which, monkeypatch):
    found = learned(OTHERS[which]())
    monkeypatch.setattr(compiled_ppo, "library", lambda: None)
    assert are_equal(found, learned(OTHERS[which]()))  # what torch's operators make of its own code
    plain = learned(ppo())
    assert not all(torch.allclose(found[name], plain[name], atol=1e-4) for name in plain)


def sac(kind: type[SAC] = SAC, critic: type[QNetwork] = QNetwork) -> SAC:
    torch.manual_seed(0)
    networks = ActorQPackCfg(
        actor_cfg=SACActorCfg(backbone_cfg=_RELU), critic_cfg=QNetworkCfg(backbone_cfg=_RELU)
    )
    policy = networks.build(_FACE)
    policy.critic.__class__ = critic
    return kind(SACCfg(batch_size=8), policy, 1, 10, torch.Generator())


class LazySAC(SAC):
    def _policy_gradients(self, batch, outputs, noise, alpha):
        metrics = super()._policy_gradients(batch, outputs, noise, alpha)
        for parameter in self.policy.actor.parameters():
            parameter.grad.zero_()
        return metrics


class Halving(QNetwork):
    def forward(self, features_bd, actions_ba):
        return 0.5 * super().forward(features_bd, actions_ba)


@needs_compiler
@pytest.mark.parametrize("others", [{"kind": LazySAC}, {"critic": Halving}])
def test_whatever_is_not_sac_itself_trains_with_its_own_code(others, monkeypatch):
    def weights(**kinds) -> dict[str, torch.Tensor]:
        algorithm = sac(**kinds)
        accelerate(algorithm)
        test_sac.steps(algorithm, 3)
        return algorithm.policy.state_dict()

    found = weights(**others)
    monkeypatch.setattr(compiled_sac, "library", lambda: None)
    assert are_equal(found, weights(**others))
    assert not are_equal(found, weights())


def iql(kind: type[IQL] = IQL) -> IQL:
    torch.manual_seed(0)
    networks = IQLPackCfg(
        actor_cfg=BoundedActorCfg(backbone_cfg=_RELU),
        critic_cfg=QNetworkCfg(backbone_cfg=_RELU),
        value_cfg=VNetworkCfg(backbone_cfg=_RELU),
    )
    return kind(IQLCfg(batch_size=8), networks.build(_FACE), 1, 10, torch.Generator())


class LazyIQL(IQL):
    def _imitate(self, steps, advantages):
        return torch.zeros(())


@needs_compiler
def test_whatever_is_not_iql_itself_trains_with_its_own_code(monkeypatch):
    def weights(kind: type[IQL]) -> dict[str, torch.Tensor]:
        algorithm = iql(kind)
        accelerate(algorithm)
        test_iql.steps(algorithm, 3)
        return algorithm.policy.state_dict()

    found = weights(LazyIQL)
    monkeypatch.setattr(compiled_iql, "library", lambda: None)
    assert are_equal(found, weights(LazyIQL))
    assert not are_equal(found, weights(IQL))


@needs_compiler
@pytest.mark.parametrize(
    "made",
    [
        ppo,
        lambda: ppo(rnd_cfg=RNDCfg()),
        lambda: ppo(symmetry_cfg=SYMMETRY),
        lambda: GAILCfg(num_mini_batches=2).build(pack().build(_FACE), 4, 8, torch.Generator()),
        lambda: ModelPPOCfg(num_mini_batches=2).build(pack().build(_FACE), 4, 8, torch.Generator()),
        lambda: AMPCfg(num_mini_batches=2, observation_group="policy").build(
            pack().build(_FACE), 4, 8, torch.Generator()
        ),
        sac,
        lambda: MBPOCfg(batch_size=8).build(sac().policy, 1, 10, torch.Generator()),
        iql,
    ],
)
def test_what_the_code_was_written_for_learns_with_it(made, caplog):
    algorithm = made()
    with caplog.at_level(logging.INFO, "rrf.compiled"):
        accelerate(algorithm)
    assert algorithm.compiled is not None
    assert caplog.messages == [f"{type(algorithm).__name__} learns in compiled code"]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: ppo(BoldPPO), "BoldPPO learns with torch's operators: there is no compiled code"),
        (lambda: with_another("actor", SteepActor), "policy.actor has a SteepActor"),
        (with_another_backbone, "policy.actor has a SteepMLP"),
        (with_an_extension, "extensions has a Sizes"),
        (with_its_own_method, "this instance has its own entropy_bonus"),
        (with_weight_decay, "the optimizer of policy.actor is not plain Adam"),
        (
            lambda: ppo(num_learning_epochs=1).__class__(
                PPOCfg(num_mini_batches=32), pack().build(_FACE), 4, 8, torch.Generator()
            ),
            "some of its mini-batches have a single sample",
        ),
        (lambda: ppo(symmetry_cfg=None), "the code could not be compiled"),
        (lambda: ppo(symmetry_cfg=SYMMETRY.replace(mirror_loss_coef=1.0)), "it has a mirror loss"),
    ],
)
def test_the_reason_is_logged_once(made, reason, caplog, monkeypatch):
    monkeypatch.setattr(compiled_ppo, "library", lambda: None)
    with caplog.at_level(logging.INFO, "rrf.compiled"):
        accelerate(made())
    [message] = caplog.messages
    assert reason in message


def test_every_class_of_the_tables_exists():
    for code in acceleration._CODES:
        names = [*code.algorithms, *code.networks.values()]
        names += [name for classes in code.parts.values() for name in classes]
        names += acceleration._LINEAR.values()
        assert all(isinstance(locate(name), type) for name in names)
        assert all(issubclass(locate(name), nn.Module) for name in code.networks.values())


@needs_compiler
def test_mirrored_samples_are_learned_from_as_torch_does():
    """They are twice as many as those of a rollout."""
    learned_from = []
    for is_fused in (True, False):
        made = ppo(symmetry_cfg=SYMMETRY)
        if is_fused:
            accelerate(made)
            assert made.compiled is not None
        samples = made.augmented(test_ppo.drawn_samples(made, 1))
        assert len(samples) == 2 * test_ppo.num_samples(made)
        (made.compiled or made).learn(samples)
        learned_from.append(made.policy.state_dict())
    found, expected = learned_from
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=5e-5, rtol=1e-4)
