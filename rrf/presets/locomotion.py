"""Robots that walk at commanded velocities: mjlab's tasks, networks and reward weights.

The presets fit two CPU cores (native MuJoCo). Some of Go1 also change rewards, for a training of
minutes. On a GPU, mjlab itself steps the environments: `rrf train go1-flat-ppo device=cuda:0
env.num_envs=4096 max_iterations=1500`.
"""

from rrf.algorithms.imitation.amp_configs import AMPCfg
from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.config import TYPE_KEY
from rrf.envs.mjlab.configs import MjlabEnvCfg, MotionEnvCfg, TrackingEnvCfg
from rrf.networks.configs import plain_mlp
from rrf.policies.control.configs import ActorCriticPackCfg, StateIndStdActorCfg, VNetworkCfg
from rrf.runners.control.amp_configs import AMPRunnerCfg
from rrf.runners.control.configs import OnPolicyRunnerCfg

_NETWORK = plain_mlp([512, 256, 128], "ELU")
_SMALL_NETWORK = plain_mlp([256, 128, 64], "ELU")


# Changes of mjlab's task, which is made for 4,096 environments and 10,000 iterations, for a laptop.
_GO1_IN_MINUTES = {
    "events.push_robot": None,
    # Commands give a turning rate instead of a heading, and moderate sideways and turning speeds.
    "commands.twist.heading_command": False,
    "commands.twist.rel_heading_envs": 0.0,
    "commands.twist.rel_forward_envs": 0.1,
    "commands.twist.ranges.heading": None,
    "commands.twist.ranges.lin_vel_y": [-0.7, 0.7],
    "commands.twist.ranges.ang_vel_z": [-0.7, 0.7],
    "curriculum.command_vel": None,  # it would overwrite these ranges
    # With mjlab's weight of -0.1, exploration costs more than walking earns; the robot then learns
    # to stand still.
    "rewards.action_rate_l2.weight": -0.02,
    # On flat ground, foot heights help the critic little, and casting their rays takes time.
    "observations.critic.terms.foot_height": None,
    "scene.sensors.foot_height_scan": None,
    "rewards.foot_clearance": None,
    "rewards.foot_swing_height": None,
    "rewards.foot_slip": None,
    "rewards.soft_landing": None,
    # A standard deviation of 0.5 rad/s instead of 0.71, so that turning is rewarded enough.
    "rewards.track_angular_velocity.params.std": 0.5,
}


def go1_flat_ppo() -> OnPolicyRunnerCfg:
    """A quadruped on flat ground. It walks after about ten minutes of training on two cores.

    Compared with mjlab's task, there are no pushes, no foot shaping and no heading command. The
    noise, the randomised bodies and the physics are the same. `env.overrides={}` trains with
    mjlab's own rewards. There are twice the environments and half the steps per rollout, because
    mjlab's terms cost the same time for 512 and for 1,024 environments.
    """
    return _laptop_go1(_velocity("go1-flat-ppo", "Flat-Unitree-Go1", max_iterations=250))


def go1_flat_quick() -> OnPolicyRunnerCfg:
    """go1-flat-ppo in two thirds of the time, with networks of less than a third of the weights.

    What goes on from a walker of go1-flat-ppo (go1-flat-amp, go1-rough-teacher) and what comes from
    mjlab's own trainer has larger networks.
    """
    cfg = go1_flat_ppo()
    policy = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=_SMALL_NETWORK),
        critic_cfg=VNetworkCfg(backbone_cfg=_SMALL_NETWORK),
    )
    return cfg.replace(experiment_name="go1-flat-quick", policy=policy)


def go1_flat_amp() -> AMPRunnerCfg:
    """A walker of go1-flat-ppo learns to trot like a reference motion (AMP, arXiv:2104.02180).

    Give its checkpoint as init_from=PATH. The rewards for the task add up to about 0.2 a step.
    """
    ppo = go1_flat_ppo()
    shared = ppo.algorithm.to_dict()
    shared.pop(TYPE_KEY)
    env = ppo.env.to_dict()
    env.pop(TYPE_KEY)
    env["overrides"] |= {
        "rewards.pose": None,  # it would hold the joints where the robot stands
        # Small errors of the velocity would otherwise cost less than style earns.
        "rewards.track_linear_velocity.weight": 6.0,
        "rewards.track_angular_velocity.weight": 5.0,
    }
    # The base of the clip never shakes, by which the discriminator would know every robot.
    seen = ["joint_pos", "joint_vel", "feet"]
    return AMPRunnerCfg(
        experiment_name="go1-flat-amp",
        env=MotionEnvCfg(**env, frame_parts=seen, reference_init=0.25),
        policy=ppo.policy,
        algorithm=AMPCfg(
            **shared,
            task_weight=1.0,
            style_weight=0.15,
            discriminator_cfg=plain_mlp([256, 128], "ReLU"),
            discriminator_learning_rate=3e-4,
        ),
        num_steps_per_env=ppo.num_steps_per_env,
        max_iterations=400,
    )


def go1_rough_ppo() -> OnPolicyRunnerCfg:
    """A quadruped on stairs, slopes and rubble."""
    return _velocity("go1-rough-ppo", "Rough-Unitree-Go1", max_iterations=1500)


def go1_rough_teacher() -> OnPolicyRunnerCfg:
    """A walker of go1-flat-ppo gets a height scan and learns to walk on stairs, slopes and rubble.

    Give its checkpoint as init_from=PATH. A robot that walks already keeps walking under mjlab's
    own penalty on changes of the actions, which makes it move smoothly.
    """
    cfg = _laptop_go1(_velocity("go1-rough-teacher", "Rough-Unitree-Go1", max_iterations=600))
    overrides = dict(_GO1_IN_MINUTES)
    del overrides["rewards.action_rate_l2.weight"]
    return cfg.replace(
        env=cfg.env.replace(overrides=overrides),
        algorithm=cfg.algorithm.replace(entropy_coef=0.002),
    )


def g1_flat_ppo() -> OnPolicyRunnerCfg:
    """A humanoid on flat ground."""
    return _velocity("g1-flat-ppo", "Flat-Unitree-G1", max_iterations=1500)


def g1_rough_ppo() -> OnPolicyRunnerCfg:
    """A humanoid on stairs, slopes and rubble."""
    return _velocity("g1-rough-ppo", "Rough-Unitree-G1", max_iterations=3000)


# Changes of mjlab's tracking task, in which a beginner loses more per step than the clip earns.
_G1_TRACKING_IN_HOURS = {
    # Each step in which the robot touches itself, or moves its targets by noise, costs a tenth.
    "rewards.self_collisions.weight": -1.0,
    "rewards.action_rate_l2.weight": -0.02,
    "rewards.joint_limit.weight": -2.0,
    # A robot does not know where it is in the world, so it cannot be where the clip is.
    "rewards.motion_global_root_pos.weight": 0.0,
}


def g1_tracking_mjlab() -> OnPolicyRunnerCfg:
    """A humanoid that tracks a motion clip in mjlab's task, from what it can measure itself.

    Actions are added to the clip's joint angles, episodes begin on the clip without disturbances,
    and these grow while the robot stays on its feet. `env.task=Mjlab-Tracking-Flat-Unitree-G1
    env.overrides={} env.actions_around=default env.first_level=1` is mjlab's own task.
    """
    cfg = _velocity("g1-tracking-mjlab", "Flat-Unitree-G1", max_iterations=3000)
    env = TrackingEnvCfg(
        task="Mjlab-Tracking-Flat-Unitree-G1-No-State-Estimation",
        num_envs=512,
        physics="fast",
        fresh_contacts=False,
        actions_around="reference",
        first_level=0.0,
        overrides=_G1_TRACKING_IN_HOURS,
    )
    policy = ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(backbone_cfg=_SMALL_NETWORK, init_std=0.3, min_std=0.05),
        critic_cfg=VNetworkCfg(backbone_cfg=_SMALL_NETWORK),
    )
    algorithm = PPOCfg(
        entropy_coef=0.001,
        desired_kl=0.02,
        num_learning_epochs=4,
        min_learning_rate=1e-4,  # noise this small makes any step of the policy look far
        max_learning_rate=1e-3,
        precision="auto",
    )
    return cfg.replace(env=env, policy=policy, algorithm=algorithm)


def _velocity(name: str, task: str, max_iterations: int) -> OnPolicyRunnerCfg:
    return OnPolicyRunnerCfg(
        experiment_name=name,
        env=MjlabEnvCfg(task=f"Mjlab-Velocity-{task}", num_envs=512),
        policy=ActorCriticPackCfg(
            actor_cfg=StateIndStdActorCfg(backbone_cfg=_NETWORK),
            critic_cfg=VNetworkCfg(backbone_cfg=_NETWORK),
        ),
        algorithm=PPOCfg(entropy_coef=0.01, learning_rate=1e-3, desired_kl=0.01),
        num_steps_per_env=24,
        max_iterations=max_iterations,
    )


def _laptop_go1(cfg: OnPolicyRunnerCfg) -> OnPolicyRunnerCfg:
    """A run of Go1 with the settings for a laptop."""
    algorithm = cfg.algorithm.replace(entropy_coef=0.005, desired_kl=0.02, precision="auto")
    return cfg.replace(
        env=cfg.env.replace(num_envs=1024, overrides=_GO1_IN_MINUTES, fresh_contacts=False),
        num_steps_per_env=12,
        algorithm=algorithm,
    )
