"""Several actor roles that divide the weights, gradients and optimizer state (FSDP2).

All ranks compute the same update, each on its share of every minibatch; the result is that of one
actor up to the order of sums. Whole weights come from rank 0. A rank that dies ends the run, which
goes on from its last checkpoint.

The ranks run in child processes or Ray actors. They exchange plain data with the driver, builtins
and NumPy arrays, and gradients among each other by gloo or NCCL.
"""

import dataclasses
import socket
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from rrf.config import TYPE_KEY, trust
from rrf.envs.observations import from_plain, to_plain
from rrf.envs.vec_env import InitialState
from rrf.orchestra.actor_role import ActorRole
from rrf.orchestra.build_roles import build_actor, imitation_of, starting_policy
from rrf.orchestra.weight_sync import Message
from rrf.policies.policy import Evaluation, Policy
from rrf.runners.process_group import known_device
from rrf.runners.supervised.configs import ShardingCfg
from rrf.runners.supervised.parallel import shard
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from rrf.storage.trajectories import Job, PlayedEpisode

_EPISODE_TENSORS = ("log_prob", "value")
_EPISODE_ARRAYS = ("reward", "steps")
_EPISODE_FACTS = ("success", "truncated", "final_value", "policy_version", "reset_digest")
_EPISODE_FACTS += ("weight", "stopped_early", "step_reward", "success_at_end", "steps_to_success")


RANK = "rrf.orchestra.actor_group:ActorRank"
TIMEOUT_S = 3600.0  # of an update of a large policy


class ActorRank:
    """One rank of the group."""

    def __init__(self, cfg: dict, parent: str, rank: int, size: int):
        """
        Args:
            cfg: A `VLARLRunnerCfg` as plain data.
            parent: The checkpoint that training starts from.
            rank: The number of this process.
            size: The number of ranks.
        """
        for part in (cfg["env"], cfg["policy"]):
            trust(part[TYPE_KEY].partition(":")[0])
        self._cfg = VLARLRunnerCfg.from_dict(cfg)
        self._parent, self._rank, self._size = Path(parent), rank, size

    def free_port(self) -> int:
        """A port of this machine at which the others can be met."""
        with socket.create_server(("", 0)) as free:
            return free.getsockname()[1]

    def join(self, address: str) -> None:
        """Meet the others, and divide the policy."""
        cfg = self._cfg
        backend = "nccl" if known_device(cfg.device).type == "cuda" else "gloo"
        dist.init_process_group(
            backend, init_method=address, rank=self._rank, world_size=self._size
        )
        # FSDP2 looks for the tensors of what a method returns, to hook its backward pass there.
        torch.export.register_dataclass(Evaluation)
        policy = starting_policy(cfg, self._parent)
        imitation = imitation_of(cfg, policy, self._parent)

        def divide(module: typing.Any) -> None:
            shard(module, module.blocks(), ShardingCfg(), bf16=False, methods=("loss", "evaluate"))

        self._actor: ActorRole = build_actor(cfg, policy, imitation, divide)

    def set_noise_factor(self, factor: float) -> None:
        self._actor.set_noise_factor(factor)

    def weights(self, deployed: bool) -> Message:
        """All weights, as a message of `WeightSender`; of rank 0 only."""
        weights = self._actor.deployed_weights() if deployed else self._actor.weights()
        return self._plain(weights)

    def update(self, episodes: list[list[dict]], *arguments) -> dict[str, float]:
        """See `ActorRole.update`."""
        groups = [[played_episode(each) for each in group] for group in episodes]
        torch.set_num_threads(self._cfg.update_threads)
        return self._actor.update(groups, *arguments)

    def state(self) -> tuple[Message, dict]:
        """See `ActorRole.state`."""
        tensors, facts = self._actor.state()
        return self._plain(tensors), facts

    def restore(self, deployed: Message, tensors: Message, facts: dict) -> None:
        """See `ActorRole.restore`."""
        self._actor.restore(_tensors(deployed), _tensors(tensors), facts)

    def _plain(self, tensors: Mapping[str, torch.Tensor]) -> Message:
        return plain(tensors) if self._rank == 0 else {}


class ActorGroup:
    """The ranks, used as one role; see `rrf.runners.vla_rl.roles.Actor`."""

    def __init__(
        self,
        ranks: Sequence[typing.Any],
        host: str,
        local: ActorRole,
    ):
        """
        Args:
            ranks: Children that serve `ActorRank`; see `rrf.envs.process.child.Child`.
            host: The address of the machine of rank 0.
            local: Another one in the driver, which is not trained: for its sizes and config, and
                for the check before the first update.
        """
        self.policy, self.algorithm, self.offload = local.policy, local.algorithm, None
        self._local_actor = local
        self._ranks = ranks
        ranks[0].send("free_port")
        self._all("join", f"tcp://{host}:{ranks[0].result()}")

    def leave(self) -> None:
        """The ranks stay where they are; `ray.offload` is refused for them."""

    def set_noise_factor(self, factor: float) -> None:
        """See `ActorRole.set_noise_factor`."""
        self.algorithm.policy.set_noise_factor(factor)
        self._all("set_noise_factor", factor)

    def check(self, player: Policy, episodes: Sequence[PlayedEpisode]) -> dict[str, float]:
        """See `ActorRole.check`."""
        return self._local_actor.check(player, episodes)

    def weights(self) -> dict[str, torch.Tensor]:
        """See `ActorRole.weights`."""
        weights = _tensors(self._all("weights", False))
        self.policy.load_state_dict(weights)
        return weights

    def deployed_weights(self) -> dict[str, torch.Tensor]:
        """See `ActorRole.deployed_weights`."""
        return _tensors(self._all("weights", True))

    def update(
        self,
        groups: Sequence[Sequence[PlayedEpisode]],
        horizon: int,
        round_number: int,
        lr_factor: float,
        seed: int,
    ) -> dict[str, float]:
        """See `ActorRole.update`."""
        episodes = [[plain_episode(each) for each in group] for group in groups]
        return self._all("update", episodes, horizon, round_number, lr_factor, seed)

    def state(self) -> tuple[dict[str, torch.Tensor], dict]:
        """See `ActorRole.state`."""
        message, facts = self._all("state")
        return _tensors(message), facts

    def restore(
        self, deployed: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], facts: dict
    ) -> None:
        """See `ActorRole.restore`."""
        self._all("restore", plain(deployed), plain(tensors), facts)

    def _all(self, method: str, *arguments) -> typing.Any:
        """What rank 0 answers; the others must be called, too."""
        for rank in self._ranks:
            rank.send(method, *arguments)
        first, *_ = [rank.result() for rank in self._ranks]
        return first


def plain(tensors: Mapping[str, torch.Tensor]) -> Message:
    """Tensors as bytes, with types and shapes."""
    return {
        name: (_bytes(value), str(value.dtype).removeprefix("torch."), list(value.shape))
        for name, value in tensors.items()
    }


def _bytes(value: torch.Tensor) -> np.ndarray:
    return value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()


def _tensors(message: Message) -> dict[str, torch.Tensor]:
    """The inverse of `plain`."""
    return {
        name: torch.from_numpy(np.array(content)).view(getattr(torch, dtype)).view(shape)
        for name, (content, dtype, shape) in message.items()
    }


def plain_episode(episode: PlayedEpisode) -> dict[str, typing.Any]:
    """An episode that kept its observations as plain data, without what an expert recorded."""
    assert episode.observation is not None
    return {
        "job": dataclasses.asdict(episode.job),
        "observation": to_plain(episode.observation),
        "replay": {name: values.numpy() for name, values in episode.replay.items()},
        **{name: getattr(episode, name).numpy() for name in _EPISODE_TENSORS},
        **{name: getattr(episode, name) for name in (*_EPISODE_ARRAYS, *_EPISODE_FACTS)},
    }


def played_episode(plain: dict[str, typing.Any]) -> PlayedEpisode:
    """The inverse of `plain_episode`. Its arrays may be read-only."""
    job = plain["job"]
    return PlayedEpisode(
        job=Job(job["id"], job["group"], InitialState(**job["initial_state"])),
        observation=from_plain(plain["observation"]),
        replay={name: _tensor(values) for name, values in plain["replay"].items()},
        **{name: _tensor(plain[name]) for name in _EPISODE_TENSORS},
        **{name: np.array(plain[name]) for name in _EPISODE_ARRAYS},
        **{name: plain[name] for name in _EPISODE_FACTS},
    )


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.array(values))
