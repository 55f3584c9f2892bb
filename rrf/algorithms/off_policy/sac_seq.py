"""SAC for policies with a memory, trained on sequences like R2D2 (openreview r1lyTjAqYX).

Actor and critics each have an encoder of histories. Sequences are stored with the memories that
the networks had when they acted. The first steps (burn-in) bring these memories up to date with the
current weights. Every remaining step is a sample of SAC's own gradient step.

A reset inside a sequence clears the memory. The state after a step is encoded from the observation
that the step really led to, so that a time limit is bootstrapped inside a sequence, too. N-step
returns end with the sequence. Twin critics share one encoder, which only the critics' loss trains.

Legend: T time, B sequences, S = length * B samples, N environments, A action width.
"""

import dataclasses
import typing
from collections.abc import Iterator

import torch
from tensordict import TensorDict

from rrf.algorithms.off_policy.configs import SACSeqCfg
from rrf.algorithms.off_policy.sac import SAC, Noise
from rrf.policies.control.sequence_encoder import GRUEncoder, TransformerEncoder
from rrf.policies.control.state_network import forget
from rrf.storage.replay import RowLayout, Transitions, over_n_steps
from rrf.storage.rollout import ControlStep
from rrf.storage.sequences import SequenceReplay, Sequences


@dataclasses.dataclass
class SequenceBatch:
    """The sequences that one gradient step learns from."""

    sequences: Sequences  # [T, B], including the burn-in
    steps: Transitions  # [S], the steps after the burn-in, flattened
    discounts: torch.Tensor  # [S]
    last: torch.Tensor  # int64 [S], index of the last sample in each sample's n-step return


class SACSeq(SAC):
    """SAC whose networks have recurrent encoders."""

    cfg: SACSeqCfg
    encoder_class: type = GRUEncoder
    encoder_cfgs = "GRUEncoderCfg"
    stores_memories = True
    """Whether sequences begin with the memory of that time; otherwise with an empty one."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.memories = self._initial_memories()
        self._memories_before: dict[str, torch.Tensor] = {}

    def check_policy(self) -> None:
        for name in ("actor", "critic"):
            if not isinstance(getattr(self.policy, name).memory, self.encoder_class):
                raise ValueError(
                    f"policy.{name}_cfg.encoder must be a components.{self.encoder_cfgs} for "
                    f"{type(self).__name__}"
                )

    def make_replay(self, layout: RowLayout, size: int, memory_gib: float | None) -> SequenceReplay:
        memories = self._initial_memories()
        shapes = {name: (memory.shape[0], memory.shape[2]) for name, memory in memories.items()}
        return SequenceReplay(
            layout,
            size,
            self.num_envs,
            self.cfg.burn_in + self.cfg.sequence_length,
            self.cfg.stride,
            shapes if self.stores_memories else {},
            self.device,
            memory_gib,
        )

    # ------------------------------------------------------------------ the three verbs

    @torch.no_grad()
    def act(self, observations: TensorDict) -> torch.Tensor:
        actor, critic = self.policy.actor, self.policy.critic
        self._memories_before = dict(self.memories)
        outputs, memory = actor.step(actor.read(observations), self.memories["actor"])
        assert memory is not None
        self.memories["actor"] = memory
        if "critic" in self.memories:
            _, memory = critic.encode(critic.read(observations), self.memories["critic"])
            assert memory is not None
            self.memories["critic"] = memory
        if self.is_warming_up:
            return self.random_actions()
        return actor.distribution(outputs).sample(self.generator)

    @torch.no_grad()
    def observe(self, step: ControlStep) -> None:
        self.replay.write(self._memories_before, **self.as_row(step))
        self._count()
        for name, memory in self.memories.items():
            self.memories[name] = forget(memory, step.dones)

    def batches(self, count: int) -> Iterator[tuple[SequenceBatch, Noise]]:
        cfg = self.cfg
        if not self.replay.num_places:
            return
        size = cfg.sequence_length * cfg.batch_size
        for _ in range(count):
            sequences = self.replay.sample(cfg.batch_size, self.generator)
            batch = SequenceBatch(sequences, *self._trained(sequences))
            yield batch, next(self.draw_noise(1, size))

    def episodes_cut(self) -> None:
        self.replay.replay.cut()
        self.memories = self._initial_memories()

    # ------------------------------------------------------------------ passes through the networks

    def actor_pass(
        self, batch: SequenceBatch, needs_gradient: bool
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        with torch.set_grad_enabled(needs_gradient):
            features, next_features = self._unroll(
                "actor", self.policy.actor, batch, with_next=True
            )
            outputs = self.policy.actor.backbone(features) if needs_gradient else None
        with torch.no_grad():
            assert next_features is not None
            return outputs, self.policy.actor.backbone(next_features[batch.last])

    def critic_features(self, batch: SequenceBatch) -> torch.Tensor:
        return self._unroll("critic", self.policy.critic, batch, with_next=False)[0]

    def target_features(self, batch: SequenceBatch) -> torch.Tensor:
        after = self._unroll("critic", self.target_critic, batch, with_next=True)[1]
        assert after is not None
        return after[batch.last]

    def _unroll(
        self, name: str, network: typing.Any, batch: SequenceBatch, with_next: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Features [S, D] of the samples and, if wanted, of their next states."""
        burn_in, starts = self.cfg.burn_in, batch.sequences.starts
        memory = batch.sequences.memories.get(name)
        if memory is not None and burn_in:
            with torch.no_grad():
                before, _ = self._observed(name, batch, slice(burn_in))
                memory = network.unroll_memory(before, memory, starts[:burn_in])
            part = slice(burn_in, None)
        else:
            part = slice(None)
        x, next_x = self._observed(name, batch, part)
        features, next_features = network.unroll(
            x, next_x if with_next else None, memory, starts[part]
        )
        self.unrolled(name, network, x, features, memory, starts[part])
        trained = slice(-self.cfg.sequence_length, None)
        return features[trained].flatten(0, 1), next_features[trained].flatten(
            0, 1
        ) if with_next else None

    def unrolled(
        self,
        name: str,
        network: typing.Any,
        x_tbo: torch.Tensor,
        now_tbd: torch.Tensor,
        memory: torch.Tensor | None,
        starts_tb: torch.Tensor,
    ) -> None:
        """Called after a pass of "actor" or "critic" along sequences, with its input and its
        features. Subclasses add losses of their encoders here."""

    def _observed(
        self, name: str, batch: SequenceBatch, part: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        steps = batch.sequences.steps
        x = steps.actor_obs if name == "actor" else steps.critic_obs
        next_x = steps.next_actor_obs if name == "actor" else steps.next_critic_obs
        return x[part], next_x[part]

    def _trained(self, sequences: Sequences) -> tuple[Transitions, torch.Tensor, torch.Tensor]:
        """Transitions over `n_steps`, their discounts, and the index of each one's last sample."""
        cfg, rows = self.cfg, sequences.steps.rows[self.cfg.burn_in :]
        num_sequences, samples = rows.shape[1], rows.flatten(0, 1)
        first = torch.arange(len(samples), device=rows.device)
        ahead = torch.arange(cfg.n_steps, device=rows.device).unsqueeze(1)
        places = first + ahead * num_sequences  # [n, S]
        steps = Transitions(samples[places.clamp(max=len(samples) - 1)], sequences.steps.layout)
        merged, discounts, last = over_n_steps(steps, places[1:] < len(samples), cfg.gamma)
        return merged, discounts, first + last * num_sequences

    # ------------------------------------------------------------------ state

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        tensors, facts = super().state()
        return tensors | {f"memory/{n}": m.clone() for n, m in self.memories.items()}, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        super().load_state(tensors, facts)
        for name in self.memories:
            self.memories[name] = tensors[f"memory/{name}"].to(self.device)

    def _initial_memories(self) -> dict[str, torch.Tensor]:
        names = ("actor", "critic") if self.stores_memories else ("actor",)
        memories = {n: getattr(self.policy, n).initial_memory(self.num_envs) for n in names}
        return {name: memory.to(self.device) for name, memory in memories.items()}


class SACTrans(SACSeq):
    """SAC whose actor and critics read a history of observations with a causal transformer.

    It reads a stretch of `burn_in` + `sequence_length` stored steps at once; each step attends to
    the earlier steps of its episode. The last `sequence_length` steps have a loss; each of them has
    a history of at least `burn_in` steps, or one that begins with its episode. No memory is stored:
    a history consists of observations, which are already in the replay.

    A stretch must not be longer than the context of the deployed policy, so that training never
    uses a longer history than acting. Equal lengths are best, because most of the time the deployed
    policy acts on its full context. (In targets, the state after a stretch's last step indirectly
    sees one more observation, through the steps before it.)

    It is a second level of inheritance, because only where histories begin differs from SACSeq.
    """

    encoder_class = TransformerEncoder
    encoder_cfgs = "TransformerEncoderCfg"
    stores_memories = False

    def check_policy(self) -> None:
        super().check_policy()
        window = self.cfg.burn_in + self.cfg.sequence_length
        for name in ("actor", "critic"):
            context = getattr(self.policy, name).memory.context
            if window > context:
                raise ValueError(
                    f"burn_in + sequence_length is {window}, but policy.{name}_cfg.encoder.context "
                    f"is {context}, the longest history that the deployed policy sees; lower "
                    "burn_in or sequence_length, or raise the context"
                )
