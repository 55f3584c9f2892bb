"""Students that see less than their teachers. The teacher is given as teacher=PATH."""

from rrf.algorithms.distillation.configs import DAggerCfg, DistillationCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import MemoryCfg
from rrf.policies.control.student_configs import BlindActorCfg, StudentCfg
from rrf.presets.locomotion import go1_rough_teacher
from rrf.runners.control.distillation_configs import DistillationRunnerCfg

_ANGULAR_VELOCITY = [2]  # column of Pendulum-v1's observation: cosine, sine, angular velocity
_HEIGHT_SCAN = list(range(48, 235))  # columns of the group "actor" of mjlab's rough Go1


def pendulum_hidden_distill() -> DistillationRunnerCfg:
    """A recurrent student without the angular velocity, of pendulum-sac; 192,000 steps."""
    algorithm = DistillationCfg(num_learning_epochs=4)
    return _pendulum("pendulum-hidden-distill", algorithm, max_iterations=200)


def pendulum_hidden_dagger() -> DistillationRunnerCfg:
    """The same student, trained with DAgger from 38,400 labels."""
    algorithm = DAggerCfg(num_learning_epochs=2, sequences_per_batch=64)
    return _pendulum("pendulum-hidden-dagger", algorithm, max_iterations=40)


def go1_rough_student() -> DistillationRunnerCfg:
    """A blind recurrent student of go1-rough-teacher: it does not read the height scan."""
    env = go1_rough_teacher().env
    actor = BlindActorCfg(
        backbone_cfg=plain_mlp([256, 128], "ELU"),
        memory=MemoryCfg(hidden_size=256),
        hidden={"actor": _HEIGHT_SCAN},
    )
    return DistillationRunnerCfg(
        experiment_name="go1-rough-student",
        env=env,
        policy=StudentCfg(actor_cfg=actor),
        algorithm=DistillationCfg(num_learning_epochs=4),
        num_steps_per_env=60,
        max_iterations=60,
        save_interval=10,
    )


def _pendulum(name: str, algorithm: DistillationCfg, max_iterations: int) -> DistillationRunnerCfg:
    actor = BlindActorCfg(
        backbone_cfg=plain_mlp([64, 64], "ELU"),
        memory=MemoryCfg(hidden_size=64),
        hidden={"policy": _ANGULAR_VELOCITY},
    )
    return DistillationRunnerCfg(
        experiment_name=name,
        policy=StudentCfg(actor_cfg=actor),
        algorithm=algorithm,
        num_steps_per_env=60,
        max_iterations=max_iterations,
        save_interval=max(1, max_iterations // 4),
    )
