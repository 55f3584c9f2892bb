"""The on-policy loop of adversarial motion priors: the environment gives the reference motions."""

from rrf.envs.control_env import MotionEnv
from rrf.runners.control.amp_configs import AMPRunnerCfg
from rrf.runners.control.on_policy import OnPolicyRunner


class AMPRunner(OnPolicyRunner):
    """Trains with AMP.

    Raises:
        ValueError: If the environment has no reference motions.
    """

    cfg: AMPRunnerCfg  # pyright: ignore[reportIncompatibleVariableOverride]

    def _build(self) -> None:
        super()._build()
        if not isinstance(self.env, MotionEnv):
            raise ValueError(
                f"{self.task} has no reference motions; use rrf.envs.mjlab.configs:MotionEnvCfg, "
                "or an environment that is a rrf.envs.control_env.MotionEnv"
            )
        self.algorithm.style.follow(self.env.reference_frames())
