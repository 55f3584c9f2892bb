"""One vector environment split in two: the first slots train, the last ones evaluate.

The training view is the wrapper itself. It has `num_envs - num_eval_envs` environments and never
shows a row of the others. The others are stepped together with it. The evaluation policy acts in
them greedily, so a run knows at any time what its policy is worth without exploration noise, and
this costs nothing but the slots. Because the policy keeps learning, an evaluation episode may span
several of its versions.

Legend: N environments of the wrapped environment, E of them for evaluation, A width of an action.
"""

import collections
import typing

import torch
from tensordict import TensorDict, TensorDictBase

from rrf.envs.control_env import ControlEnv, EnvState, check_actions
from rrf.envs.wrappers.wrapper import ControlEnvWrapper

_STATE = "group_vec/sums"
_NOT_ROWS = ("final_obs", "log")


class Acts(typing.Protocol):
    """The policy that evaluates, for example `rrf.policies.control.actor_critic.ControlPolicy`."""

    def act(self, observations: TensorDict, greedy: bool = True) -> torch.Tensor:
        """Actions [E, A] for observations [E]."""
        ...

    def reset(self, where_n: torch.Tensor | None = None) -> None:
        """Forget the environments marked in `where_n`, bool [E], or all."""
        ...


class EvalView:
    """The evaluation slots.

    Attributes:
        policy: The policy that acts in them. Without one, the actions are zeros and nothing is
            counted. An episode counts if the policy was there from its beginning.
        episodes: (return, length) of the last `KEPT` episodes that ended.
    """

    KEPT = 1000

    def __init__(self, num_envs: int, num_actions: int):
        self.num_envs = num_envs
        self.num_actions = num_actions
        self.policy: Acts | None = None
        self.episodes: collections.deque[tuple[float, int]] = collections.deque(maxlen=self.KEPT)
        self._sums_e2 = torch.zeros(num_envs, 2, dtype=torch.float64)  # return, length
        self._is_counted_e = torch.zeros(num_envs, dtype=torch.bool)
        self._observations: TensorDict | None = None

    def get_observations(self) -> TensorDict:
        """The current observations of the evaluation slots, TensorDict [E]."""
        assert self._observations is not None
        return self._observations

    def statistics(self) -> dict[str, float]:
        """eval/return, eval/length and eval/episodes over `episodes`; empty if there are none."""
        return _statistics(list(self.episodes))

    def actions(self, device: torch.device | str) -> torch.Tensor:
        """The next actions, float32 [E, A]."""
        if self.policy is not None:
            return self.policy.act(self.get_observations(), greedy=True).to(device)
        return torch.zeros(self.num_envs, self.num_actions, device=device)

    def observe(
        self, observations: TensorDict, rewards: torch.Tensor, dones: torch.Tensor
    ) -> dict[str, float]:
        """Record one step; returns the statistics of the episodes that ended in it."""
        self._observations = observations
        self._sums_e2[:, 0] += rewards.detach().to("cpu", torch.float64)
        self._sums_e2[:, 1] += 1
        ended = dones.cpu().nonzero().flatten()
        if not len(ended):
            return {}
        counted = ended[self._is_counted_e[ended]]
        recent = [(total, int(length)) for total, length in self._sums_e2[counted].tolist()]
        self.episodes.extend(recent)
        self._sums_e2[ended] = 0.0
        self._is_counted_e[ended] = self.policy is not None
        if self.policy is not None:
            self.policy.reset(dones)
        return _statistics(recent)

    def restart(self, observations: TensorDict, is_new: bool = True) -> None:
        """Continue from `observations`. `is_new` says that new episodes begin here."""
        self._observations = observations
        if is_new:
            self._sums_e2.zero_()
        self._is_counted_e[:] = is_new and self.policy is not None
        if self.policy is not None:
            self.policy.reset()

    def state(self) -> torch.Tensor:
        """float64 [E, 3]: return and length of the running episodes, and whether they count."""
        counted = self._is_counted_e[:, None].to(torch.float64)
        return torch.cat([self._sums_e2, counted], dim=1)

    def load_state(self, state: torch.Tensor) -> None:
        """Restore what `state` returned."""
        self._sums_e2.copy_(state[:, :2])
        self._is_counted_e.copy_(state[:, 2].bool() & (self.policy is not None))


class GroupVecWrapper(ControlEnvWrapper):
    """The training view of `env`; `eval_view` holds the evaluation slots.

    A step's `extras["log"]` has eval/return, eval/length and eval/episodes of the evaluation
    episodes that ended in it.
    """

    def __init__(self, env: ControlEnv, num_eval_envs: int, eval_policy: Acts | None = None):
        """Split `env`.

        Args:
            env: The environment to split.
            num_eval_envs: E, the number of its last environments that evaluate.
            eval_policy: The policy that acts in them; see `evaluate_with`.

        Raises:
            ValueError: If one of the two groups would have no environment.
        """
        super().__init__(env)
        if not 0 < num_eval_envs < env.num_envs:
            raise ValueError(
                f"num_eval_envs is {num_eval_envs}; of {env.num_envs} environments 1 to "
                f"{env.num_envs - 1} can evaluate"
            )
        self._num_train = env.num_envs - num_eval_envs
        self.eval_view = EvalView(num_eval_envs, env.num_actions)
        self.eval_view.policy = eval_policy
        is_new = not bool(env.episode_length_buf[self._num_train :].any())
        self.eval_view.restart(env.get_observations()[self._num_train :], is_new)

    @property
    def num_envs(self) -> int:
        """The number of training environments."""
        return self._num_train

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """int64 [N - E], may be set."""
        return self.env.episode_length_buf[: self._num_train]

    @episode_length_buf.setter
    def episode_length_buf(self, lengths: torch.Tensor) -> None:
        self.env.episode_length_buf[: self._num_train] = lengths

    def evaluate_with(self, policy: Acts) -> None:
        """Let `policy` act in the evaluation slots. Episodes count from the next reset on."""
        self.eval_view.policy = policy
        self.eval_view.restart(self.eval_view.get_observations(), is_new=False)

    def get_observations(self) -> TensorDict:
        """The current observations of the training environments, TensorDict [N - E]."""
        return self.env.get_observations()[: self._num_train]

    def reset(self) -> tuple[TensorDict, dict]:
        """Start new episodes in both groups."""
        observations, extras = self.env.reset()
        self.eval_view.restart(observations[self._num_train :])
        return observations[: self._num_train], self._train_rows(extras)

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`; `actions` are those of the training environments."""
        check_actions(actions, self._num_train, self.num_actions)
        joint = torch.cat([actions, self.eval_view.actions(actions.device).to(actions.dtype)])
        observations, rewards, dones, extras = self.env.step(joint)
        num = self._num_train
        log = self.eval_view.observe(observations[num:], rewards[num:], dones[num:])
        train_extras = self._train_rows(extras)
        if (final := extras.get("final_obs")) is not None:
            num_ended = int(dones[:num].sum())
            train_extras["final_obs"] = final[:num_ended] if num_ended else None
        train_extras["log"] = dict(extras.get("log", {})) | log
        return observations[:num], rewards[:num], dones[:num], train_extras

    def state(self) -> EnvState | None:
        """See `ControlEnv.state`. A recurrent evaluation policy starts without memory after
        `load_state`.
        """
        state = self.env.state()
        if state is None:
            return None
        return EnvState(state.tensors | {_STATE: self.eval_view.state()}, state.facts)

    def load_state(self, state: EnvState) -> None:
        """See `ControlEnv.load_state`."""
        if _STATE not in state.tensors:
            raise ValueError(
                "the state was saved without evaluation environments; load it into the "
                "environment itself, not into GroupVecWrapper"
            )
        rest = {name: tensor for name, tensor in state.tensors.items() if name != _STATE}
        self.env.load_state(EnvState(rest, state.facts))
        observations = self.env.get_observations()[self._num_train :]
        self.eval_view.restart(observations, is_new=False)
        self.eval_view.load_state(state.tensors[_STATE])

    def _train_rows(self, extras: dict) -> dict:
        """`extras` with the rows of the training environments only, in nested dicts too."""
        total, kept = self.env.num_envs, {}
        for name, value in extras.items():
            if isinstance(value, dict) and name not in _NOT_ROWS:
                kept[name] = self._train_rows(value)
            elif isinstance(value, (torch.Tensor, TensorDictBase)) and name not in _NOT_ROWS:
                is_per_env = value.ndim > 0 and value.shape[0] == total
                kept[name] = value[: self._num_train] if is_per_env else value
            else:
                kept[name] = value
        return kept


def _statistics(episodes: list[tuple[float, int]]) -> dict[str, float]:
    if not episodes:
        return {}
    count = len(episodes)
    return {
        "eval/return": sum(total for total, _ in episodes) / count,
        "eval/length": sum(length for _, length in episodes) / count,
        "eval/episodes": float(count),
    }
