"""A replay of sequences for policies with a memory, as R2D2 has it (openreview r1lyTjAqYX).

Transitions lie in a `Replay`; beside them stand the memories that the networks had at every
`stride`-th step when they acted. A sequence begins at such a step with the memory of then, its
first `burn_in` steps only bring that memory up to date with the weights of today, and where an
episode begins within it, `starts` says so.

Legend: T time, B sequences, N environments, L layers of a memory, M its width, P stored places.
"""

import dataclasses

import torch

from rrf.storage.replay import Replay, RowLayout, Transitions, check_memory


@dataclasses.dataclass
class Sequences:
    """B stretches of T = burn_in + length steps."""

    steps: Transitions  # [T, B]
    starts: torch.Tensor  # bool [T, B], an episode begins with this step
    memories: dict[str, torch.Tensor]  # before the first step, each [L, B, M]


class SequenceReplay:
    """A replay that is read in stretches."""

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
            length: Steps of a sequence, burn-in included.
            stride: Steps between places where a sequence may begin.
            memory_shapes: (L, M) of each memory that is stored, by name.

        Raises:
            ValueError: If no sequence fits in, or all takes more memory than allowed.
        """
        num_transitions -= num_transitions % (num_envs * stride)
        self.length, self.stride = length, stride
        if num_transitions // num_envs <= length + stride:
            raise ValueError(
                f"replay_size gives {num_transitions // num_envs} steps to each of {num_envs} "
                f"environments, allowed: more than {length + stride} (burn_in + sequence_length + "
                "stride)"
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
        """Memory of a full replay."""
        return self.replay.num_bytes + sum(m.numel() * 4 for m in self._memories.values())

    @property
    def num_places(self) -> int:
        """How many steps a sequence can begin with."""
        low, high = self._places()
        return max(0, high - low)

    def __len__(self) -> int:
        return len(self.replay)

    def write(self, memories: dict[str, torch.Tensor], **step: torch.Tensor) -> None:
        """Store one step of all environments; see `Replay.write`.

        Args:
            memories: As they were before the step, each [L, N, M].
        """
        replay = self.replay
        if replay.total_steps % self.stride == 0:
            begin = replay.total_steps % replay.num_steps // self.stride * replay.num_envs
            for name, stored in self._memories.items():
                stored[begin : begin + replay.num_envs] = memories[name].transpose(0, 1)
        replay.write(**step)

    def sample(self, num_sequences: int, generator: torch.Generator) -> Sequences:
        """Sequences drawn with equal probability of the places they can begin at."""
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
        # One step before the first tells whether that one begins an episode.
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
        """The first place that has a whole sequence behind it, and the first after the last."""
        replay = self.replay
        # Of the very oldest step it is not known whether it began an episode.
        oldest = replay.first_step + 1 if replay.first_step else 0
        return -(-oldest // self.stride), (replay.total_steps - self.length) // self.stride + 1

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The filled part and where it goes on; views, not copies."""
        tensors, facts = self.replay.state()
        filled = -(-len(self.replay) // (self.stride * self.replay.num_envs))
        memories = {
            f"memory/{name}": stored[: filled * self.replay.num_envs]
            for name, stored in self._memories.items()
        }
        return tensors | memories, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """Go on from what `state` of a replay of the same size gave."""
        self.replay.load_state(tensors, facts)
        for name, stored in self._memories.items():
            kept = tensors[f"memory/{name}"]
            stored[: len(kept)] = kept.to(stored)
