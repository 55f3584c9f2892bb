"""Proximal policy optimisation, arXiv:1707.06347, for state-based control.

    for num_steps steps: actions = act(observations); observe(what the environment made of them)
    update:
        returns  -> samples with returns and advantages
        learn    -> for each mini-batch: losses of actor and critic, a gradient step of both

It follows rsl_rl: the KL divergence adapts the learning rate, the gradients of actor and critic are
clipped separately, advantages are normalised over the rollout. The differences are:

* At a time limit, the bootstrap uses the value of the observation in which the episode really
  ended.
* Every epoch shuffles the samples anew.
* The standard deviation is learned as a logarithm and is bounded.
* Nothing inside the mini-batch loop waits for a device.
* Observation statistics are updated after the policy, so that the ratio begins at exactly 1.

Variants override `penalty`, `critic_penalty`, `rewards` or `batches`. Random network distillation
and symmetry are an `Extension` each, which PPO and all its variants accept.

Legend: T time, N environments, S = T * N, B mini-batch, O observation width, A action width.
"""

import typing
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import torch
from tensordict import TensorDict
from torch import nn

from rrf.algorithms import distributed
from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.algorithms.on_policy.losses import adapted_learning_rate, clipped_surrogate, value_errors
from rrf.algorithms.optimizer_tensors import beneath, optimizer_tensors, restore_optimizer
from rrf.algorithms.returns import add_time_limit_bootstrap, gae
from rrf.policies.control.actor_critic import ActorCritic, Distribution
from rrf.policies.control.normalizer import RewardScaler
from rrf.policies.control.state_network import StateNetwork, forget
from rrf.precision import autocast, fast_pass, is_bf16
from rrf.storage.rollout import Batch, ControlStep, Rollout, Samples

if typing.TYPE_CHECKING:  # what PPO is given, or only hands on
    from rrf.algorithms.on_policy.extension import Extension, Penalty
    from rrf.algorithms.on_policy.rsl_rl_interface import RslRlAlgorithm

Metrics = dict[str, torch.Tensor]


class PPO:
    """Call `act` and `observe` for `num_steps` steps, then `update`, and repeat."""

    trains_populations = False
    compiled: typing.Any = None
    """Does what `learn` does in compiled code; `rrf.compiled.acceleration` gives it."""

    def __init__(
        self,
        cfg: PPOCfg,
        policy: ActorCritic,
        num_envs: int,
        num_steps: int,
        generator: torch.Generator,
        device: torch.device | str = "cpu",
    ):
        """
        Args:
            policy: Trained in place.
            num_envs: Number of environments of this process.
            num_steps: Steps per rollout.
            generator: Samples the actions and shuffles the samples; on `device`.

        Raises:
            ValueError: If a rollout cannot be split into `cfg.num_mini_batches`, or if this
                algorithm cannot train this kind of policy.
        """
        if policy.num_members > 1 and not self.trains_populations:
            raise ValueError(
                f"{type(self).__name__} trains one actor, but this policy is a population of "
                f"{policy.num_members}; use algorithms.SAPGCfg, algorithms.EPOCfg or "
                "policy.num_members=1"
            )
        self.cfg, self.policy = cfg, policy
        self.generator, self.device = generator, torch.device(device)
        self.rollout = Rollout(num_steps, num_envs, device)
        self.is_recurrent = policy.actor.memory is not None or policy.critic.memory is not None
        _require_mini_batches(cfg, num_envs, num_steps, self.is_recurrent)
        self.actor_memory = policy.actor.initial_memory(num_envs)
        self.critic_memory = policy.critic.initial_memory(num_envs)
        self.slowness = 1.0  # factor on the configured learning rates
        self.reward_scaler = RewardScaler(num_envs, cfg.gamma).to(self.device)
        # Both optimizers hold the same learning-rate tensor: changing it in place changes both.
        self.learning_rate = torch.tensor(cfg.learning_rate, device=self.device)
        self.actor_optimizer, self.critic_optimizer = (
            torch.optim.Adam(
                list(network.parameters()), lr=self.learning_rate, eps=cfg.adam_eps, fused=True
            )
            for network in (policy.actor, policy.critic)
        )
        self.critic_thread = ThreadPoolExecutor(1) if cfg.learner_threads == 2 else None
        options = {"rnd": cfg.rnd_cfg, "symmetry": cfg.symmetry_cfg}
        self.extensions: dict[str, Extension] = {
            name: option.build(self) for name, option in options.items() if option
        }

    @torch.no_grad()
    def act(self, observations: TensorDict) -> torch.Tensor:
        """Sampled actions, float32 [N, A]."""
        actor, critic = self.policy.actor, self.policy.critic
        if self.rollout.step == 0:
            self.rollout.memories = {"actor": self.actor_memory, "critic": self.critic_memory}
        x = actor.read(observations)
        outputs, self.actor_memory = actor.step(x, self.actor_memory)
        distribution = actor.distribution(outputs)
        actions = distribution.sample(self.generator)
        self.rollout.write(
            actor_obs=x,
            critic_obs=critic.read(observations),
            actions=actions,
            distribution=distribution.parameters,
        )
        return actions

    @torch.no_grad()
    def observe(self, step: ControlStep) -> None:
        """Record the outcome of the last actions."""
        rollout = self.rollout
        rollout.write(rewards=self.rewards(step), dones=step.dones, time_outs=step.time_outs)
        if step.final_observations is not None:
            ended = step.dones.nonzero().squeeze(-1)
            rollout.finals.append((rollout.step, ended, step.final_observations))
        if self.actor_memory is not None:
            self.actor_memory = forget(self.actor_memory, step.dones)
        rollout.advance()

    def update(self, observations: TensorDict) -> dict[str, float]:
        """Learn from the rollout and begin the next one.

        Args:
            observations: The observations after the rollout's last step.

        Returns:
            Means over all mini-batches: loss/surrogate, loss/value, loss/entropy, policy/kl,
            policy/clip_fraction, train/learning_rate, policy/std, and the metrics of penalties and
            extensions.
        """
        samples = self.returns(observations)
        metrics = self.compiled.learn(samples) if self.compiled else self.learn(samples)
        self.update_normalizers(samples)
        self.rollout.restart()
        for extension in self.extensions.values():
            metrics |= extension.learn()
        metrics |= self.policy.actor.exploration()
        return metrics | {"train/learning_rate": self.learning_rate.item()}

    @torch.no_grad()
    def returns(self, observations: TensorDict) -> Samples:
        """The full rollout as samples, with advantages (normalised) and returns."""
        rollout, cfg, policy = self.rollout, self.cfg, self.policy
        rollout.write(
            actor_obs=policy.actor.read(observations), critic_obs=policy.critic.read(observations)
        )
        values, final_values = self.values()
        if cfg.normalize_rewards:
            rollout["rewards"].copy_(self.reward_scaler(rollout["rewards"], rollout["dones"]))
        dones = torch.cat([torch.zeros_like(rollout["dones"][:1]), rollout["dones"]])
        with distributed.together(self.device):
            rewards = add_time_limit_bootstrap(
                rollout["rewards"], rollout["time_outs"], final_values, cfg.gamma
            )
            advantages, returns = gae(rewards, values, dones, cfg.gamma, cfg.lam)
        rollout["log_prob"] = self.behaviour().log_prob(rollout["actions"])
        samples = self.augmented(Samples.of(rollout, values[:-1], returns, advantages))
        if not cfg.normalize_advantage_per_mini_batch:
            samples.advantages = self.normalized_advantages(samples)
        return samples

    def learn(self, samples: Samples) -> dict[str, float]:
        """A gradient step on every mini-batch of every epoch; the means of their metrics."""
        sums: Metrics = {}
        count = 0
        for batch in self.batches(samples):
            for name, value in self.step(batch).items():
                sums[name] = sums.get(name, torch.zeros((), device=self.device)) + value
            count += 1
        return {name: value.item() / count for name, value in sums.items()}

    def step(self, batch: Batch) -> Metrics:
        """One gradient step of actor and critic. The critic may compute in its own thread."""
        actor, critic, thread = self.policy.actor, self.policy.critic, self.critic_thread
        running = thread.submit(_backward, critic, self.critic_loss, batch) if thread else None
        metrics = _backward(actor, self.actor_loss, batch)
        metrics |= running.result() if running else _backward(critic, self.critic_loss, batch)
        self.adapt_learning_rate(metrics["policy/kl"])
        distributed.average_gradients(self.policy)
        for network, optimizer in ((actor, self.actor_optimizer), (critic, self.critic_optimizer)):
            nn.utils.clip_grad_norm_(network.parameters(), self.cfg.max_grad_norm, foreach=True)
            optimizer.step()
        actor.constrain()
        return metrics

    def actor_loss(self, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        """Surrogate - entropy bonus + penalties, and metrics to log."""
        cfg, actor = self.cfg, self.policy.actor
        with autocast(cfg.precision, self.device):
            if actor.memory is None:
                distribution = self.distribution_in(batch.actor_obs)
            else:
                distribution = actor.distribution(self._along_sequences("actor", batch).float())
            log_prob, entropy = distribution.log_prob(batch.actions), distribution.entropy()
            advantages = batch.advantages
            if cfg.normalize_advantage_per_mini_batch:
                advantages = distributed.normalized(advantages)
            surrogate = self.surrogate(batch, log_prob, advantages).mean()
            loss = surrogate - self.entropy_bonus(batch, entropy)
            penalties = [self.penalty(batch, distribution)]
            penalties += [e.penalty(batch, distribution) for e in self.extensions.values()]
            penalties = [penalty for penalty in penalties if penalty]
            for penalty, _ in penalties:
                loss = loss + penalty
        with torch.no_grad():
            acted = actor.distribution_class.of_parameters(batch.distribution)
            is_clipped = (log_prob - batch.log_prob).exp().sub(1).abs() > cfg.clip_param
            metrics = {
                "loss/surrogate": surrogate.detach(),
                "loss/entropy": entropy.detach().mean(),
                "policy/kl": distributed.mean(acted.kl_to(distribution).mean()),
                "policy/clip_fraction": is_clipped.float().mean(),
            }
        for _, numbers in penalties:
            metrics |= numbers
        return loss, metrics

    def critic_loss(self, batch: Batch) -> tuple[torch.Tensor, Metrics]:
        """The value loss + penalty, and metrics to log."""
        cfg, critic = self.cfg, self.policy.critic
        with fast_pass(cfg.precision, self.device):
            if critic.memory is None:
                values = critic.value(batch.critic_obs)
            else:
                values = self._along_sequences("critic", batch).squeeze(-1)
        with autocast(cfg.precision, self.device):
            value_loss = self.value_losses(batch, values.float()).mean()
            loss = cfg.value_loss_coef * value_loss
            penalty, numbers = self.critic_penalty(batch, values) or (None, {})
            if penalty is not None:
                loss = loss + penalty
        return loss, {"loss/value": value_loss.detach()} | numbers

    # ------------------------------------------------------------------ what variants override

    def rewards(self, step: ControlStep) -> torch.Tensor:
        """The rewards of a step, float32 [N]; extensions add intrinsic rewards here."""
        rewards = step.rewards
        for extension in self.extensions.values():
            rewards = extension.rewards(step, rewards)
        return rewards

    def augmented(self, samples: Samples) -> Samples:
        """The samples to learn from: those of the rollout, and those that extensions derive."""
        for extension in self.extensions.values():
            samples = extension.augmented(samples)
        return samples

    def normalized_advantages(self, samples: Samples) -> torch.Tensor:
        """Advantages with zero mean and unit variance, [S]."""
        return distributed.normalized(samples.advantages)

    def batches(self, samples: Samples) -> Iterator[Batch]:
        """The mini-batches of all epochs. Networks with a memory receive whole sequences."""
        cfg, num_envs = self.cfg, self.rollout.num_envs
        count = num_envs if self.is_recurrent else len(samples)
        for _ in range(cfg.num_learning_epochs):
            for part in self.order(count).tensor_split(cfg.num_mini_batches):
                if not self.is_recurrent:
                    yield samples.rows(part)
                    continue
                times = torch.arange(self.rollout.num_steps, device=self.device)
                rows = times.unsqueeze(1) * num_envs + part
                yield samples.rows(rows.flatten(), part)

    def order(self, count: int) -> torch.Tensor:
        """A random order of the samples or sequences of an epoch, int64 [count]."""
        return torch.randperm(count, generator=self.generator, device=self.device)

    def surrogate(self, batch: Batch, log_prob: torch.Tensor, advantages: torch.Tensor):
        """The policy loss of each sample, [B]."""
        return clipped_surrogate(log_prob, batch.log_prob, advantages, self.cfg.clip_param)

    def entropy_bonus(self, batch: Batch, entropy: torch.Tensor) -> torch.Tensor:
        """The entropy bonus, a scalar that is subtracted from the actor's loss."""
        return self.cfg.entropy_coef * entropy.mean()

    def penalty(self, batch: Batch, distribution: Distribution) -> "Penalty | None":
        """A term for the actor's loss and metrics to log; None for nothing."""
        return None

    def value_losses(self, batch: Batch, values: torch.Tensor) -> torch.Tensor:
        """The critic's loss of each sample, [B]."""
        clip = self.cfg.clip_param if self.cfg.use_clipped_value_loss else None
        return value_errors(values, batch.values, batch.returns, clip)

    def critic_penalty(self, batch: Batch, values: torch.Tensor) -> "Penalty | None":
        """A term for the critic's loss and metrics to log; None for nothing."""
        return None

    def update_normalizers(self, samples: Samples) -> None:
        """Merge the observations into the statistics with which they are normalised."""
        pairs = (self.policy.actor, samples.actor_obs), (self.policy.critic, samples.critic_obs)
        for network, observed in pairs:
            if network.normalizer is not None:
                network.normalizer.update(observed)

    # ------------------------------------------------------------------ passes through the networks

    def values(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Values of all observations, [T + 1, N], and of the final ones of episodes, [T, N]."""
        rollout, critic = self.rollout, self.policy.critic
        critic_obs = rollout["critic_obs"]
        if critic.memory is None:
            values, memories = critic.value(critic_obs), []
        else:
            outputs, memories = critic.sequence(critic_obs, self.critic_memory, rollout.starts)
            values = outputs.squeeze(-1)
        final_values = torch.zeros_like(values[:-1])
        for t, ended, final in rollout.finals:
            memory = memories[t][:, ended].contiguous() if memories else None
            outputs, _ = critic.step(critic.read(final).to(self.device), memory)
            final_values[t, ended] = outputs.squeeze(-1)
        if memories:  # the memory before the observation that follows the last step was read
            self.critic_memory = forget(memories[-2], rollout["dones"][-1])
        return values, final_values

    def behaviour(self) -> Distribution:
        """The distribution that chose the actions, computed in the precision of the update.

        Otherwise the ratio would not begin at 1.
        """
        actor, rollout = self.policy.actor, self.rollout
        if is_bf16(self.cfg.precision, self.device):
            with fast_pass(self.cfg.precision, self.device):
                outputs, _ = actor.sequence(
                    rollout["actor_obs"][:-1], rollout.memories["actor"], rollout.starts[:-1]
                )
            rollout["distribution"] = actor.distribution(outputs.float()).parameters
        return actor.distribution_class.of_parameters(rollout["distribution"])

    def distribution_in(self, x_so: torch.Tensor) -> Distribution:
        """An actor's distribution in given states, in the update's precision; for no memory."""
        actor = self.policy.actor
        with fast_pass(self.cfg.precision, self.device):
            outputs = actor(x_so)
        return actor.distribution(outputs.float())

    def _along_sequences(self, name: typing.Literal["actor", "critic"], batch: Batch):
        """The outputs of a network with a memory for whole sequences, [B, ...]."""
        assert batch.envs is not None
        network: StateNetwork = getattr(self.policy, name)
        memory = self.rollout.memories[name]
        if memory is not None:
            memory = memory[:, batch.envs].contiguous()
        x_so = batch.actor_obs if name == "actor" else batch.critic_obs
        x_tbo = x_so.unflatten(0, (self.rollout.num_steps, -1))
        outputs, _ = network.sequence(x_tbo, memory, self.rollout.starts[:-1, batch.envs])
        return outputs.flatten(0, 1)

    # ------------------------------------------------------------------ learning rate, state

    def adapt_learning_rate(self, kl: torch.Tensor) -> None:
        """Follow the adaptive schedule after a mini-batch with this divergence."""
        cfg = self.cfg
        if cfg.schedule == "adaptive":
            low, high = self.slowness * cfg.min_learning_rate, self.slowness * cfg.max_learning_rate
            self.set_learning_rate(
                adapted_learning_rate(self.learning_rate, kl, cfg.desired_kl, low, high)
            )

    def set_learning_rate(self, learning_rate: torch.Tensor | float) -> None:
        """Set the learning rate of both optimizers, in place."""
        self.learning_rate.copy_(torch.as_tensor(learning_rate))

    def anneal(self, progress: float) -> None:
        """Set the learning rate of a linear schedule; `progress` is 0 to 1 through the run."""
        if self.cfg.schedule == "linear":
            self.set_learning_rate(self.cfg.learning_rate * self.slowness * (1 - progress))

    def slow_down(self, factor: float) -> None:
        """Multiply the learning rate by `factor` from now on."""
        self.slowness *= factor
        self.set_learning_rate(self.learning_rate * factor)

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The named tensors and plain data that `load_state` needs besides the policy's weights."""
        tensors = {"learning_rate": self.learning_rate.clone()}
        for name, memory in (("actor", self.actor_memory), ("critic", self.critic_memory)):
            if memory is not None:
                tensors[f"memory/{name}"] = memory
        for name, (network, optimizer) in self._learners().items():
            packed = optimizer_tensors(optimizer, network)
            tensors |= {f"optimizer/{name}/{key}": value for key, value in packed.items()}
        scaler = self.reward_scaler.state_dict().items()
        tensors |= {f"reward_scaler/{key}": value for key, value in scaler}
        for name, extension in self.extensions.items():
            tensors |= {f"{name}/{key}": value for key, value in extension.state().items()}
        return tensors, {"slowness": self.slowness}

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """Restore what `state` returned."""
        self.learning_rate.copy_(tensors["learning_rate"])
        self.slowness = facts["slowness"]
        scaler = {key: tensors[f"reward_scaler/{key}"] for key in self.reward_scaler.state_dict()}
        self.reward_scaler.load_state_dict(scaler)
        self.rollout.restart()
        if self.actor_memory is not None:
            self.actor_memory = tensors["memory/actor"].to(self.device)
        if self.critic_memory is not None:
            self.critic_memory = tensors["memory/critic"].to(self.device)
        for name, (network, optimizer) in self._learners().items():
            restore_optimizer(optimizer, network, beneath(tensors, f"optimizer/{name}/"))
        if self.compiled:
            self.compiled.rebind()
        for name, extension in self.extensions.items():
            extension.load_state(beneath(tensors, f"{name}/"))

    def episodes_cut(self) -> None:
        """Forget the running episodes. Called when the environments were reset between rollouts."""
        if self.actor_memory is not None:
            self.actor_memory = torch.zeros_like(self.actor_memory)
        if self.critic_memory is not None:
            self.critic_memory = torch.zeros_like(self.critic_memory)
        self.reward_scaler.forget_running()

    @classmethod
    def construct_algorithm(
        cls, obs: TensorDict, env: typing.Any, cfg: dict, device: str
    ) -> "RslRlAlgorithm":
        """Called by rsl_rl's runners; see `rrf.algorithms.on_policy.rsl_rl_interface`."""
        from rrf.algorithms.on_policy.rsl_rl_interface import construct

        return construct(cls, obs, env, cfg, device)

    def _learners(self) -> dict[str, tuple[StateNetwork, torch.optim.Optimizer]]:
        return {
            "actor": (self.policy.actor, self.actor_optimizer),
            "critic": (self.policy.critic, self.critic_optimizer),
        }


def _backward(
    network: nn.Module, loss_of: Callable[[Batch], tuple[torch.Tensor, Metrics]], batch: Batch
) -> Metrics:
    """Set the gradients of one network; returns the metrics of its loss."""
    loss, metrics = loss_of(batch)
    network.zero_grad()
    loss.backward()
    return metrics


def _require_mini_batches(cfg: PPOCfg, num_envs: int, num_steps: int, is_recurrent: bool) -> None:
    """Raise ValueError unless a rollout fills `cfg.num_mini_batches` mini-batches.

    A mini-batch whose advantages are normalised separately needs at least two samples.
    """
    if num_envs * num_steps < 2:
        raise ValueError(
            "a rollout holds only 1 sample, so its advantage cannot be normalised; set "
            "num_steps_per_env to 2 or more"
        )
    if is_recurrent:
        count, samples_each = num_envs, num_steps
        what = "environments, because a memory learns from whole sequences"
    else:
        count, samples_each, what = num_envs * num_steps, 1, "samples of a rollout"
    is_enough = samples_each > 1 or not cfg.normalize_advantage_per_mini_batch
    allowed = count if is_enough else count // 2
    if cfg.num_mini_batches > allowed:
        raise ValueError(
            f"algorithm.num_mini_batches is {cfg.num_mini_batches}, allowed: up to {allowed} for "
            f"the {count} {what}"
        )
