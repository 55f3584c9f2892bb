"""A native environment and mjlab's own, on Warp's CPU device, led through the same states.

The twin's physics is replaced by the native environment's: in every substep its simulation is set
to the state before the substep, mujoco_warp evaluates everything that is derived there, and the
state is set to the one after the substep. So all terms of both see the same states, and whatever
they read is computed by two different engines.
"""

import dataclasses
import itertools

import mujoco_warp
import numpy as np
import torch
import warp

from rrf.envs.mjlab.configs import MjlabEnvCfg
from rrf.envs.mjlab.env import MjlabEnv


@dataclasses.dataclass
class Twins:
    """The two environments, which draw the same random numbers."""

    native: MjlabEnv
    mjlab: MjlabEnv

    def step(self, actions: torch.Tensor):
        """Step both; the results of both."""
        stepper = self.native.env.sim.stepper
        before = self.native.env.sim.data.qpos.clone(), self.native.env.sim.data.qvel.clone()
        ours = self.native.step(actions)
        states = torch.from_numpy(np.array(stepper.states_NSX)).float()
        after = [(s[:, stepper.qpos], s[:, stepper.qvel]) for s in states.unbind(1)]
        self._lead(self.mjlab.env.sim, [before, *after])
        return ours, self.mjlab.step(actions)

    @staticmethod
    def _lead(sim, states: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        ahead = itertools.pairwise(states)

        def step() -> None:
            before, after = next(ahead)
            for qpos, qvel in (before, after):
                sim.data.qpos[:] = qpos
                sim.data.qvel[:] = qvel
                if qpos is before[0]:
                    with warp.ScopedDevice(sim.wp_device):
                        mujoco_warp.forward(sim.wp_model, sim.wp_data)

        sim.step = step

    def close(self) -> None:
        self.native.close()
        self.mjlab.close()


def make_twins(task: str, num_envs: int, overrides: dict, seed: int = 5) -> Twins:
    cfg = MjlabEnvCfg(task=task, num_envs=num_envs, overrides=overrides)
    return Twins(
        cfg.replace(backend="native").build(seed=seed),
        cfg.replace(backend="mjlab").build(seed=seed),
    )


def observation_terms(env: MjlabEnv, observations) -> dict[str, torch.Tensor]:
    """The columns of each term, "group/term" -> [N, width]."""
    manager = env.env.observation_manager
    found = {}
    for group, names in manager.active_terms.items():
        widths = [int(np.prod(dims)) for dims in manager.group_obs_term_dim[group]]
        for name, columns in zip(names, observations[group].split(widths, dim=1), strict=True):
            found[f"{group}/{name}"] = columns.clone()
    return found


def other_terms(env: MjlabEnv) -> dict[str, torch.Tensor]:
    """Values of all reward, termination, command and metric terms in the last step."""
    inner = env.env
    found = {f"reward/{name}": v for name, v in env.reward_terms().items()}
    for name in inner.termination_manager.active_terms:
        found[f"termination/{name}"] = inner.termination_manager.get_term(name).float()
    for name in inner.command_manager.active_terms:
        found[f"command/{name}"] = inner.command_manager.get_command(name)
        term = inner.command_manager.get_term(name)
        found[f"command_time_left/{name}"] = term.time_left
        found |= {f"command_metric/{name}/{key}": v for key, v in term.metrics.items()}
    for index, name in enumerate(getattr(inner.metrics_manager, "active_terms", [])):
        found[f"metric/{name}"] = inner.metrics_manager._step_values[:, index]
    for index, time_left in enumerate(inner.event_manager._interval_term_time_left):
        found[f"event_time_left/{index}"] = time_left
    return {name: value.clone().float() for name, value in found.items()}
