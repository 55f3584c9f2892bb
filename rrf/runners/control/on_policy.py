"""The loop of on-policy algorithms: alternates rollouts of fixed length and updates."""

import time

import torch

from rrf.algorithms import distributed
from rrf.runners.control.configs import OnPolicyRunnerCfg
from rrf.runners.control.loop import ControlRunner


class OnPolicyRunner(ControlRunner):
    """Trains with PPO or one of its variants."""

    cfg: OnPolicyRunnerCfg

    def _build(self) -> None:
        cfg, env = self.cfg, self.env
        self.policy = cfg.policy.build(env.interface).to(self.device)
        self.steps_per_iteration = env.num_envs * cfg.num_steps_per_env
        self.algorithm = cfg.algorithm.build(
            self.policy, env.num_envs, cfg.num_steps_per_env, self.generator, self.device
        )

    def _begin(self) -> None:
        if self.cfg.init_at_random_ep_len and self.env.max_episode_length > 1:
            self.env.episode_length_buf = torch.randint(
                int(self.env.max_episode_length),
                (self.env.num_envs,),
                generator=self.generator,
                device=self.device,
            )

    def new_episodes(self) -> None:
        super().new_episodes()
        self._begin()

    def _iterate(self) -> dict[str, float]:
        begin = time.perf_counter()
        self.algorithm.anneal(self.iteration / self.cfg.max_iterations)
        with distributed.together(self.device):
            for _ in range(self.cfg.num_steps_per_env):
                self.algorithm.observe(self.step_env(self.algorithm.act(self.observations)))
        acted = time.perf_counter()
        metrics = self.algorithm.update(self.observations)
        times = {"time/rollout": acted - begin, "time/update": time.perf_counter() - acted}
        return metrics | times
