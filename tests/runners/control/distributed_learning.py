"""PPO on a fixed stream of experience, shared out among the processes of a group.

Each process leaves the weights that it has learned; `learned` in one process is what they must
equal. Actions are fixed too: chance belongs to each process.

Legend: T time, N environments of all processes together, O observation width, A action width.
"""

from pathlib import Path

import torch
from safetensors.torch import save_file
from tensordict import TensorDict

from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.algorithms.on_policy.ppo import PPO
from rrf.envs.control_env import Interface
from rrf.networks.configs import plain_mlp
from rrf.policies.control.actor_critic import ActorCritic
from rrf.policies.control.configs import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.runners import process_group
from rrf.storage.rollout import ControlStep

T, N, O, A = 6, 8, 3, 2  # noqa: E741
ROLLOUTS = 3


def learned(rank: int, size: int) -> ActorCritic:
    """What process `rank` of `size` has after three rollouts."""
    network = plain_mlp([16], "ELU")
    pack = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=network),
        critic_cfg=VNetworkCfg(backbone_cfg=network),
    )
    torch.manual_seed(0)
    policy = pack.build(Interface({"policy": O}, A))
    cfg = PPOCfg(num_mini_batches=1, num_learning_epochs=4)
    algorithm = PPO(cfg, policy, N // size, T, torch.Generator().manual_seed(rank))
    own = slice(rank * N // size, (rank + 1) * N // size)
    for rollout in range(ROLLOUTS):
        draw = torch.Generator().manual_seed(100 + rollout)
        obs = torch.randn(T + 1, N, O, generator=draw)[:, own]
        obs[..., 0] = 9.81  # its variance, 0, is a difference of two large numbers
        actions = torch.randn(T, N, A, generator=draw)[:, own]
        rewards = torch.randn(T, N, generator=draw)[:, own]
        dones = (torch.rand(T, N, generator=draw) < 0.2)[:, own]
        groups = [TensorDict({"policy": each}, [N // size]) for each in obs]
        for t in range(T):
            act_as_told(algorithm, groups[t], actions[t])
            final = groups[t + 1][dones[t]] if dones[t].any() else None
            step = (
                groups[t + 1],
                rewards[t],
                dones[t],
                {"time_outs": dones[t], "final_obs": final},
            )
            algorithm.observe(ControlStep.of(groups[t], actions[t], step))
        algorithm.update(groups[T])
    return policy


def act_as_told(algorithm: PPO, observations: TensorDict, actions: torch.Tensor) -> None:
    algorithm.act(observations)
    algorithm.rollout.write(actions=actions)


def leave_weights(folder: Path) -> None:
    rank = process_group.rank()
    policy = learned(rank, process_group.size())
    save_file(policy.state_dict(), folder / f"{rank}.safetensors")
