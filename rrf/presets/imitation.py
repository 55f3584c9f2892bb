"""Learning to act like an expert that was recorded."""

from rrf.algorithms.imitation.configs import DiscriminatorCfg, GAILCfg
from rrf.presets.gymnasium import as_variant, pendulum_ppo
from rrf.runners.control.imitation_configs import ImitationRunnerCfg


def pendulum_gail() -> ImitationRunnerCfg:
    """Pendulum-v1 without its reward, 205,000 steps beside the recordings of a trained policy.

    With a larger penalty on the gradient, the discriminator learns too slowly for so few steps.
    """
    ppo = pendulum_ppo()
    discriminator = DiscriminatorCfg(gradient_penalty_coef=1.0)
    return ImitationRunnerCfg(
        experiment_name="pendulum-gail",
        dataset="pendulum-expert",
        env=ppo.env,
        policy=ppo.policy,
        algorithm=as_variant(ppo.algorithm, GAILCfg, discriminator_cfg=discriminator),
        num_steps_per_env=ppo.num_steps_per_env,
        max_iterations=ppo.max_iterations,
        save_interval=ppo.save_interval,
    )
