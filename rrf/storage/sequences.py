"""A replay of sequences for policies with a memory, as in R2D2 (openreview r1lyTjAqYX).

Transitions are stored in a `Replay`. In addition, the memories of the acting networks are stored at
every `stride`-th step. A sequence begins at such a step with the stored memory. Its first `burn_in`
steps only bring this memory up to date with the current weights. `starts` marks the steps where an
episode begins within a sequence.

Legend: T time, B sequences, N environments, L layers of a memory, M width of a memory.
"""

import dataclasses

import torch

from rrf.storage.replay import Replay, RowLayout, Transitions, check_memory


@dataclasses.dataclass
class Sequences:
    """B sequences of T steps, including the burn-in."""

    steps: Transitions  # [T, B]
    starts: torch.Tensor  # bool [T, B], an episode begins with this step
    memories: dict[str, torch.Tensor]  # before the first step, each [L, B, M]


class SequenceReplay:
    """A replay from which whole sequences are sampled."""

    def __init__(
        self,
        layout: RowLayout,
        num_transitions: int,
        num_envs: int,
        length: int,
        stride: int,
        memory_shapes: dict[str, tuple[int, int]],
        device: torch.device | str = "cpu",
        memory_limit_gib: float | None = None,
    ):
        """
        Args:
            length: Steps of a sequence, including the burn-in.
            stride: Steps between two places where a sequence may begin.
            memory_shapes: (L, M) of each stored memory, by name.

        Raises:
            ValueError: If no sequence fits in, or if the replay needs more memory than allowed.
        """
        num_transitions -= num_transitions % (num_envs * stride)
        self.length, self.stride = length, stride
        if num_transitions // num_envs <= length + stride:
            raise ValueError(
                f"replay_size gives {num_transitions // num_envs} steps to each of {num_envs} "
                f"environments, allowed: more than {length + stride} steps each (burn_in + "
                "sequence_length + stride)"
            )
        self.replay = Replay(layout, num_transitions, num_envs, device, memory_limit_gib)
        places = self.replay.num_steps // stride
        self._memories = {
            name: torch.empty(places * num_envs, *shape, device="meta")
            for name, shape in memory_shapes.items()
        }
        check_memory(self.num_bytes, self.replay.capacity, memory_limit_gib)
        self._memories = {
            name: torch.zeros_like(memory, device=device) for name, memory in self._memories.items()
        }

    @property
    def num_bytes(self) -> int:
        """Memory of a full replay in bytes."""
        return self.replay.num_bytes + sum(m.numel() * 4 for m in self._memories.values())

    @property
    def num_places(self) -> int:
        """Number of steps at which a sequence can begin, per environment."""
        low, high = self._places()
        return max(0, high - low)

    def __len__(self) -> int:
        return len(self.replay)

    def write(self, memories: dict[str, torch.Tensor], **step: torch.Tensor) -> None:
        """Store one step of all environments; see `Replay.write`.

        Args:
            memories: The memories before the step, each [L, N, M].
        """
        replay = self.replay
        if replay.total_steps % self.stride == 0:
            begin = replay.total_steps % replay.num_steps // self.stride * replay.num_envs
            for name, stored in self._memories.items():
                stored[begin : begin + replay.num_envs] = memories[name].transpose(0, 1)
        replay.write(**step)

    def sample(self, num_sequences: int, generator: torch.Generator) -> Sequences:
        """Random sequences; every place where one can begin has the same probability."""
        replay, device = self.replay, self.replay.rows.device
        low, high = self._places()
        shape = (num_sequences,)
        places = torch.randint(low, high, shape, generator=generator, device=device)
        envs = torch.randint(replay.num_envs, shape, generator=generator, device=device)
        return self.gather(places, envs)

    def gather(self, places_b: torch.Tensor, envs_b: torch.Tensor) -> Sequences:
        """The sequences of environments `envs_b` that begin at steps `places_b` * stride."""
        replay = self.replay
        begin = places_b * self.stride
        # The step before the sequence shows whether an episode begins with the sequence.
        times = torch.arange(-1, self.length, device=begin.device).unsqueeze(1) + begin
        rows = times % replay.num_steps * replay.num_envs + envs_b
        steps = replay.gather(rows)
        starts = steps.ended[:-1] > 0.5
        starts[0] |= begin == 0
        where = places_b % (replay.num_steps // self.stride) * replay.num_envs + envs_b
        memories = {
            name: stored[where].transpose(0, 1).contiguous()
            for name, stored in self._memories.items()
        }
        return Sequences(Transitions(steps.rows[1:], replay.layout), starts, memories)

    def _places(self) -> tuple[int, int]:
        """The range of places where a whole sequence can begin: first, and last plus 1."""
        replay = self.replay
        # It is unknown whether an episode began at the oldest step.
        oldest = replay.first_step + 1 if replay.first_step else 0
        return -(-oldest // self.stride), (replay.total_steps - self.length) // self.stride + 1

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The filled part (views, not copies) and the number of steps written."""
        tensors, facts = self.replay.state()
        filled = -(-len(self.replay) // (self.stride * self.replay.num_envs))
        memories = {
            f"memory/{name}": stored[: filled * self.replay.num_envs]
            for name, stored in self._memories.items()
        }
        return tensors | memories, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """Restore what `state` of a replay of the same size returned."""
        self.replay.load_state(tensors, facts)
        for name, stored in self._memories.items():
            kept = tensors[f"memory/{name}"]
            stored[: len(kept)] = kept.to(stored)
