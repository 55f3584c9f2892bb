"""The replay buffer of off-policy algorithms: transitions of N environments in a ring. World models
draw slices of consecutive steps from it, and model-based algorithms keep imagined transitions.

New transitions overwrite the oldest ones. One matrix on the learner's device holds one transition
per row, so that a batch is a single gather. The observation stored after a step is the one that the
step really led to, even where a time limit ended the episode. Such a step can therefore be
bootstrapped; only a termination ends the return.

Legend: N environments, B batch or slices, T steps of a slice, M imagined transitions, W width of a
row, O observation width, A action width.
"""

import dataclasses

import torch

GIB = 2**30
_BYTES = 4  # size of a float32
_MAX_ROUNDS = 200  # of drawing slices


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """The columns of a row of a replay."""

    actor_width: int
    critic_width: int | None  # None: the critic reads the actor's observations, stored only once
    num_actions: int
    has_discount: bool = False  # a row also holds the discount of its next state

    @property
    def observation_width(self) -> int:
        return self.actor_width + (self.critic_width or 0)

    @property
    def width(self) -> int:
        """Width of two observations, the action, and the columns of one number: reward, terminated,
        ended, and perhaps the discount."""
        return 2 * self.observation_width + self.num_actions + 3 + self.has_discount


class Transitions:
    """Rows of a replay, [..., W], with names for their columns."""

    def __init__(self, rows: torch.Tensor, layout: RowLayout):
        self.rows, self.layout = rows, layout
        width, extra = layout.observation_width, int(layout.has_discount)
        widths = (width, layout.num_actions, 1, 1, 1, width, extra)
        parts = rows.split(widths, -1)
        self._obs, self.actions, rewards, terminated, ended, self._next_obs, self._discounts = parts
        self.rewards = rewards.squeeze(-1)  # [...]
        self.terminated = terminated.squeeze(-1)  # 1.0 where the return ends with this step
        self.ended = ended.squeeze(-1)  # 1.0 where the episode ends, for whatever reason

    @property
    def discounts(self) -> torch.Tensor:
        """The stored discounts of the next states, [...]."""
        return self._discounts.squeeze(-1)

    @property
    def actor_obs(self) -> torch.Tensor:
        return self._obs[..., : self.layout.actor_width]

    @property
    def critic_obs(self) -> torch.Tensor:
        return self._of_critic(self._obs)

    @property
    def next_actor_obs(self) -> torch.Tensor:
        return self._next_obs[..., : self.layout.actor_width]

    @property
    def next_critic_obs(self) -> torch.Tensor:
        return self._of_critic(self._next_obs)

    def _of_critic(self, observations: torch.Tensor) -> torch.Tensor:
        if self.layout.critic_width is None:
            return observations
        return observations[..., self.layout.actor_width :]


class Replay:
    """A ring of vectorised steps: row s * N + n is step s (modulo the ring) of environment n."""

    def __init__(
        self,
        layout: RowLayout,
        num_transitions: int,
        num_envs: int,
        device: torch.device | str = "cpu",
        memory_limit_gib: float | None = None,
    ):
        """
        Args:
            num_transitions: Capacity; rounded down to a multiple of `num_envs`.
            memory_limit_gib: Upper limit of the memory used; None for no limit.

        Raises:
            ValueError: If the capacity is less than one step of all environments, or if it needs
                more memory than allowed.
        """
        self.layout, self.num_envs = layout, num_envs
        self.num_steps = num_transitions // num_envs
        if self.num_steps < 1:
            raise ValueError(
                f"replay_size is {num_transitions}, allowed: at least one transition for each of "
                f"the {num_envs} environments"
            )
        check_memory(self.num_bytes, self.capacity, memory_limit_gib)
        self.rows = torch.empty(self.capacity, layout.width, device=device)
        self.total_steps = 0  # number of steps ever written; the newest step is total_steps - 1

    @property
    def capacity(self) -> int:
        """Number of transitions that fit in."""
        return self.num_steps * self.num_envs

    @property
    def num_bytes(self) -> int:
        """Memory of a full replay in bytes."""
        return self.capacity * self.layout.width * _BYTES

    @property
    def ended_column(self) -> int:
        """The column of a row that tells whether the episode ends with the step."""
        return self.layout.observation_width + self.layout.num_actions + 2

    @property
    def first_step(self) -> int:
        """The number of the oldest step that is still stored."""
        return max(0, self.total_steps - self.num_steps)

    def __len__(self) -> int:
        return (self.total_steps - self.first_step) * self.num_envs

    def write(
        self,
        observations: torch.Tensor,
        actions: torch.Tensor,
        rewards: torch.Tensor,
        terminated: torch.Tensor,
        ended: torch.Tensor,
        next_observations: torch.Tensor,
        discounts: torch.Tensor | None = None,
    ) -> None:
        """Store one step of all environments.

        Args:
            observations: [N, O], those of actor and critic joined.
            terminated: bool [N], the task itself ended in this step, not by its time limit.
            ended: bool [N], the episode ended in this step, for whatever reason.
            next_observations: [N, O], the observations that the step led to, before any reset.
            discounts: [N], those of the next states, if the layout has them.
        """
        columns = [observations, actions, rewards.unsqueeze(-1)]
        flags = [terminated.float().unsqueeze(-1), ended.float().unsqueeze(-1)]
        begin = self.total_steps % self.num_steps * self.num_envs
        row = self.rows[begin : begin + self.num_envs]
        given = [] if discounts is None else [discounts.unsqueeze(-1)]
        torch.cat([*columns, *flags, next_observations, *given], -1, out=row)
        self.total_steps += 1

    def cut(self) -> None:
        """Mark the newest step as the end of all episodes, like a time limit.

        Called when the running episodes were abandoned.
        """
        if self.total_steps:
            newest = (self.total_steps - 1) % self.num_steps * self.num_envs
            self.rows[newest : newest + self.num_envs, self.ended_column] = 1.0

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """Indices of rows, drawn with equal probability, int64 of shape `shape`."""
        return torch.randint(len(self), shape, generator=generator, device=self.rows.device)

    def gather(self, rows: torch.Tensor) -> Transitions:
        """The transitions at `rows` (int64 [...])."""
        return Transitions(self._take(rows), self.layout)

    def gather_n_step(
        self, rows_b: torch.Tensor, num_steps: int, gamma: float
    ) -> tuple[Transitions, torch.Tensor]:
        """Transitions over up to `num_steps` steps, and the discounts of their next states, [B].

        The discounted rewards are summed until the episode ends, or until the newest stored step.
        The next observation is the one that the last of these steps led to. The discount is gamma
        to the power of the number of steps, and 0 after a termination.
        """
        if num_steps == 1:
            steps = self.gather(rows_b)
            return steps, gamma * (1 - steps.terminated)
        ahead = torch.arange(num_steps, device=rows_b.device).unsqueeze(1)
        steps = self.gather((rows_b + ahead * self.num_envs) % self.capacity)
        is_stored = self._steps_before_newest(rows_b) >= ahead[1:]
        return over_n_steps(steps, is_stored, gamma)[:2]

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """The filled part (a view, not a copy) and the number of steps written."""
        return {"rows": self.rows[: len(self)]}, {"total_steps": self.total_steps}

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """Restore what `state` of a replay of the same size returned."""
        self.total_steps = facts["total_steps"]
        assert len(tensors["rows"]) == len(self), "the run's config was checked before"
        self.rows[: len(self)] = tensors["rows"].to(self.rows)

    def _take(self, rows: torch.Tensor) -> torch.Tensor:
        return self.rows.index_select(0, rows.flatten()).view(*rows.shape, -1)

    def _steps_before_newest(self, rows: torch.Tensor) -> torch.Tensor:
        newest = (self.total_steps - 1) % self.num_steps
        return (newest - rows // self.num_envs) % self.num_steps


def over_n_steps(
    steps: Transitions, is_stored: torch.Tensor, gamma: float
) -> tuple[Transitions, torch.Tensor, torch.Tensor]:
    """Merge a step and the steps after it into one transition, up to the end of the episode.

    Args:
        steps: [n, B], the first step, and the n - 1 steps after it.
        is_stored: bool [n - 1, B], whether each of the steps after the first is stored.

    Returns:
        A tuple. First, the merged transitions [B]: the reward is the sum of the discounted rewards,
        the next observation the one that the last step led to. Second, the discounts of the next
        states [B]: gamma to the power of the number of steps, and 0 after a termination. Third, the
        index of the last merged step, int64 [B], counted from 0.
    """
    rewards, layout = steps.rewards, steps.layout
    goes_on = (steps.ended[:-1] < 0.5) & is_stored
    counts = torch.cat([torch.ones_like(rewards[:1]), goes_on.to(rewards.dtype)]).cumprod(0)
    powers = gamma ** torch.arange(len(rewards), device=rewards.device).unsqueeze(1)
    returns = torch.where(counts > 0, powers * rewards, 0.0).sum(0)  # other entries may be NaN
    num_steps = counts.sum(0)
    last = num_steps.long() - 1
    end = steps.rows[last, torch.arange(len(last), device=last.device)]
    kept = layout.observation_width + layout.num_actions
    rows = torch.cat([steps.rows[0, :, :kept], returns.unsqueeze(-1), end[:, kept + 1 :]], -1)
    merged = Transitions(rows, layout)
    return merged, gamma**num_steps * (1 - merged.terminated), last


def check_memory(num_bytes: int, num_transitions: int, limit_gib: float | None) -> None:
    """Raise ValueError if a replay needs more than `limit_gib`; the message says what fits."""
    if limit_gib is None or num_bytes <= limit_gib * GIB:
        return
    fitting = int(limit_gib * GIB / num_bytes * num_transitions)
    raise ValueError(
        f"a replay of {num_transitions:,} transitions needs {num_bytes / GIB:.2f} GiB "
        f"({num_bytes / num_transitions:.0f} bytes each), allowed: {limit_gib} GiB; set "
        f"replay_size to at most {fitting:,}, or raise replay_memory_gib"
    )


class SliceReplay(Replay):
    """A `Replay` from which slices of consecutive steps are drawn, each within one episode."""

    def sample_slices(
        self, length: int, num_slices: int, generator: torch.Generator
    ) -> Transitions:
        """Slices [T, B]; only the last step of a slice may end an episode.

        All slices of the replay have the same probability.

        Raises:
            ValueError: If hardly any of the stored episodes has so many steps.
        """
        num_starts = (self.total_steps - self.first_step - length + 1) * self.num_envs
        slices: list[torch.Tensor] = []
        missing = num_slices
        for _ in range(_MAX_ROUNDS if num_starts > 0 else 0):
            shape = (num_slices + num_slices // 4,)
            drawn = torch.randint(num_starts, shape, generator=generator, device=self.rows.device)
            ahead = torch.arange(length, device=drawn.device).unsqueeze(1) * self.num_envs
            rows = (drawn + self.first_step * self.num_envs + ahead) % self.capacity
            is_whole = (self.rows[rows[:-1], self.ended_column] < 0.5).all(0)
            slices.append(rows[:, is_whole][:, :missing])
            missing -= slices[-1].shape[1]
            if not missing:
                return self.gather(torch.cat(slices, 1))
        raise ValueError(
            f"of {len(self)} stored transitions hardly any begins {length} steps within one "
            "episode; lower policy.actor_cfg.planner.horizon, or raise algorithm.warmup_steps"
        )


class ModelReplay(Replay):
    """A ring of imagined transitions, of which any number is written at a time. Only the
    `num_newest` ones are drawn."""

    def __init__(self, layout: RowLayout, num_transitions: int, device: torch.device | str = "cpu"):
        super().__init__(layout, num_transitions, 1, device)
        self.num_newest = num_transitions

    def __len__(self) -> int:
        return min(self.total_steps, self.num_newest)

    def extend(self, rows_mw: torch.Tensor) -> None:
        """Store transitions, at most as many as fit in."""
        count = len(rows_mw)
        assert count <= self.capacity, "the capacity follows from the numbers in the config"
        begin = self.total_steps % self.capacity
        at_end = min(count, self.capacity - begin)
        self.rows[begin : begin + at_end] = rows_mw[:at_end]
        self.rows[: count - at_end] = rows_mw[at_end:]
        self.total_steps += count

    def sample(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        """See `Replay.sample`."""
        return (self.total_steps - 1 - super().sample(shape, generator)) % self.capacity

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """See `Replay.state`."""
        filled = min(self.total_steps, self.capacity)
        facts = {"total_steps": self.total_steps, "num_newest": self.num_newest}
        return {"rows": self.rows[:filled]}, facts

    def load_state(self, tensors: dict[str, torch.Tensor], facts: dict) -> None:
        """See `Replay.load_state`."""
        self.total_steps, self.num_newest = facts["total_steps"], facts["num_newest"]
        self.rows[: len(tensors["rows"])] = tensors["rows"].to(self.rows)
