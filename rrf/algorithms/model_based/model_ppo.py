"""PPO whose rollouts are extended by imagined ones: a variant of our own, not of a paper.

    every iteration:
        a rollout in the environment, as in PPO; its transitions go into a replay
        the ensemble learns from the replay                        -> learned_dynamics.py
        M rollouts of H imagined steps begin in states of the real one, with the same policy
        PPO learns from both kinds of samples alike

Imagined samples are on-policy: the policy that acted is the one that imagines. Their returns end
with the critic's value after H steps, so they are less far-sighted than real ones, and they are
only as right as the model. An imagined rollout that terminates goes on in another observed state.

Legend: N environments, M imagined rollouts, H imagined steps, S real samples, O observation width.
"""

import typing

import torch
from tensordict import TensorDict

from rrf.algorithms.model_based.configs import ModelPPOCfg
from rrf.algorithms.model_based.learned_dynamics import LearnedDynamics
from rrf.algorithms.on_policy.ppo import PPO
from rrf.algorithms.optimizer_tensors import beneath
from rrf.algorithms.returns import gae
from rrf.storage.replay import Replay, RowLayout
from rrf.storage.rollout import ControlStep, Rollout, Samples


class ModelPPO(PPO):
    """Metrics are those of PPO and `LearnedDynamics.fit`, and model/reward and
    model/terminated, means over imagined steps."""

    cfg: ModelPPOCfg  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, cfg: ModelPPOCfg, policy: typing.Any, *args, **kwargs):
        """
        Raises:
            ValueError: For networks with a memory, discrete actions, or a critic that reads other
                observations than the actor.
        """
        super().__init__(cfg, policy, *args, **kwargs)
        actor, critic, interface = policy.actor, policy.critic, policy.interface
        task = interface.task or "this environment"
        if self.is_recurrent:
            raise ValueError(
                "the model imagines single steps, but a policy with a memory learns from whole "
                "sequences; set policy.actor_cfg.memory=null and policy.critic_cfg.memory=null"
            )
        if interface.num_choices is not None:
            raise ValueError(
                f"{task} has {interface.num_choices} discrete actions, but the model is of real "
                "ones; train it with --algorithm ppo"
            )
        if critic.groups != actor.groups:
            raise ValueError(
                f"the model predicts what the actor reads, {actor.groups}, but the critic reads "
                f"{critic.groups}; set policy.critic_cfg.observation_groups={actor.groups}"
            )
        self.model: LearnedDynamics = cfg.model_cfg.build(
            interface, actor.width, self.generator, self.device
        )
        layout = RowLayout(actor.width, None, interface.num_actions)
        num_envs = self.rollout.num_envs
        size = max(cfg.replay_size, self.rollout.num_steps * num_envs)
        self.replay = Replay(layout, size, num_envs, self.device)
        self.imagined = Rollout(cfg.branch_length, cfg.branches_per_iteration, self.device)
        self.num_updates = 0
        self._of_model: dict[str, torch.Tensor] = {}

    @torch.no_grad()
    def observe(self, step: ControlStep) -> None:
        super().observe(step)
        actor = self.policy.actor
        after = actor.read(step.next_observations)
        if step.final_observations is not None:
            after = after.clone()
            after[step.dones] = actor.read(step.final_observations)
        self.replay.write(
            observations=actor.read(step.observations).to(self.device),
            actions=self._clamped(step.actions),
            rewards=step.rewards,
            terminated=step.dones & ~step.time_outs,
            ended=step.dones,
            next_observations=after.to(self.device),
        )

    def update(self, observations: TensorDict) -> dict[str, float]:
        rows = torch.arange(len(self.replay), device=self.device)
        self._of_model = self.model.fit(self.replay.gather(rows))
        metrics = super().update(observations)
        self.num_updates += 1
        return metrics | {name: value.item() for name, value in self._of_model.items()}

    def augmented(self, samples: Samples) -> Samples:
        """See `PPO.augmented`; imagined samples are added after the warm-up."""
        samples = super().augmented(samples)
        if self.num_updates < self.cfg.warmup_iterations:
            return samples
        return samples.joined(self.imagine(samples.actor_obs))

    @torch.no_grad()
    def imagine(self, starts_so: torch.Tensor) -> Samples:
        """Imagined samples [M H], with advantages and returns."""
        cfg, rollout = self.cfg, self.imagined
        rollout.restart()
        x = self._drawn(starts_so, rollout.num_envs)
        for _ in range(cfg.branch_length):
            distribution = self.distribution_in(x)
            actions = distribution.sample(self.generator)
            step = self.model.step(x, self._clamped(actions))
            rollout.write(
                actor_obs=x,
                critic_obs=x,
                actions=actions,
                distribution=distribution.parameters,
                log_prob=distribution.log_prob(actions),
                rewards=step.rewards,
                dones=step.terminated,
            )
            rollout.advance()
            fresh = self._drawn(starts_so, len(x))
            x = torch.where(step.terminated.unsqueeze(-1), fresh, step.observations)
        rollout.write(actor_obs=x, critic_obs=x)
        self._of_model |= {
            "model/reward": rollout["rewards"].mean(),
            "model/terminated": rollout["dones"].float().mean(),
        }
        rewards = rollout["rewards"]
        if cfg.normalize_rewards:
            rewards = self.reward_scaler.scaled(rewards)
        values = self.policy.critic.value(rollout["critic_obs"])
        dones = torch.cat([torch.zeros_like(rollout["dones"][:1]), rollout["dones"]])
        advantages, returns = gae(rewards, values, dones, cfg.gamma, cfg.lam)
        return Samples.of(rollout, values[:-1], returns, advantages)

    def _drawn(self, starts_so: torch.Tensor, count: int) -> torch.Tensor:
        rows = torch.randint(len(starts_so), (count,), generator=self.generator, device=self.device)
        return starts_so[rows]

    def _clamped(self, actions: torch.Tensor) -> torch.Tensor:
        limit = self.cfg.action_limit
        return actions if limit is None else actions.clamp(-limit, limit)

    # ------------------------------------------------------------------ state

    def slow_down(self, factor: float) -> None:
        """See `PPO.slow_down`; the model slows down too."""
        super().slow_down(factor)
        self.model.set_slowness(self.slowness)

    def episodes_cut(self) -> None:
        super().episodes_cut()
        self.replay.cut()

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        tensors, facts = super().state()
        model, of_model = self.model.state()
        replay, of_replay = self.replay.state()
        tensors |= {f"model/{key}": value for key, value in model.items()}
        tensors |= {f"replay/{key}": value for key, value in replay.items()}
        of_model_ppo = {"model": of_model, "replay": of_replay, "num_updates": self.num_updates}
        return tensors, facts | of_model_ppo

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        super().load_state(tensors, facts)
        self.model.load_state(beneath(tensors, "model/"), facts["model"])
        self.model.set_slowness(self.slowness)
        self.replay.load_state(beneath(tensors, "replay/"), facts["replay"])
        self.num_updates = facts["num_updates"]
