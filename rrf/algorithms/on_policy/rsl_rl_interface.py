"""Use our on-policy algorithms in the runner of rsl_rl 5.4, which mjlab and Isaac Lab also use.

Set `"class_name": "rrf.algorithms:CAPS"` in cfg["algorithm"]; nothing else is needed. The runner
calls `construct_algorithm` and works with the `RslRlAlgorithm` that it returns. The other entries
of cfg["algorithm"] are the fields of our config (`rrf.algorithms`), which have rsl_rl's names.
cfg["actor"] and cfg["critic"] are rsl_rl's own. A policy that rsl_rl's configs cannot describe
(LipsNet, populations) is given in cfg["policy_cfg"], as plain data from `to_dict`.

Legend: N environments, O observation width, A action width.
"""

import copy
import typing
from collections.abc import Mapping

import torch
from tensordict import TensorDict
from torch import nn

from rrf import algorithms
from rrf.algorithms.on_policy.configs import PPOCfg
from rrf.compiled.acceleration import accelerate
from rrf.config import did_you_mean
from rrf.envs.control_env import Interface
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.policies.control.actor_critic import ActorCritic
from rrf.policies.control.configs import (
    ActorCriticPackCfg,
    MemoryCfg,
    StateIndStdActorCfg,
    VNetworkCfg,
)
from rrf.storage.rollout import ControlStep

ACTIVATIONS = {
    "elu": "ELU",
    "selu": "SELU",
    "relu": "ReLU",
    "lrelu": "LeakyReLU",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "gelu": "GELU",
    "swish": "SiLU",
    "mish": "Mish",
}
# Settings of rsl_rl for which rrf supports a single value.
ONLY = {"optimizer": "adam", "share_cnn_encoders": False}
# rsl_rl 5's names of the parameters that are called `std` or `log_std` here and in rsl_rl 4.
STD_NAMES = {"distribution.std_param": "std", "distribution.log_std_param": "log_std"}
_MODEL = {
    *("class_name", "hidden_dims", "activation", "obs_normalization", "distribution_cfg"),
    *("rnn_type", "rnn_hidden_dim", "rnn_num_layers"),
}
_DISTRIBUTION = {"class_name", "init_std", "std_type", "std_range", "learn_std"}


class RslRlAlgorithm:
    """The interface that rsl_rl's `OnPolicyRunner` expects of an algorithm."""

    def __init__(self, algorithm: typing.Any):
        """
        Args:
            algorithm: A `PPO` or a variant of it.
        """
        self.algorithm = algorithm
        self.policy: ActorCritic = algorithm.policy
        self._observations: TensorDict | None = None
        self._actions: torch.Tensor | None = None

    @property
    def learning_rate(self) -> float:
        return self.algorithm.learning_rate.item()

    @property
    def rnd(self):
        """The RND extension, whose weight the runner logs; None without one."""
        return self.algorithm.extensions.get("rnd")

    @property
    def intrinsic_rewards(self) -> torch.Tensor | None:
        """The intrinsic rewards of the last step, [N]."""
        return self.rnd.intrinsic_rewards if self.rnd else None

    def act(self, obs: TensorDict) -> torch.Tensor:
        # The runner acts in inference mode; autograd cannot use tensors made there.
        with torch.inference_mode(False):
            self._observations = obs.clone()
            actions = self._actions = self.algorithm.act(self._observations)
            return actions

    def process_env_step(
        self, obs: TensorDict, rewards: torch.Tensor, dones: torch.Tensor, extras: dict
    ) -> None:
        assert self._observations is not None
        assert self._actions is not None
        with torch.inference_mode(False):
            device = self.algorithm.device
            known = {name: extras[name] for name in ("time_outs", "final_obs") if name in extras}
            known = {name: v.to(device).clone() for name, v in known.items() if v is not None}
            result = obs.clone(), rewards.clone(), dones.clone(), known
            self.algorithm.observe(ControlStep.of(self._observations, self._actions, result))

    def compute_returns(self, obs: TensorDict) -> None:
        with torch.inference_mode(False):
            self._observations = obs.clone()

    def update(self) -> dict[str, float]:
        metrics = self.algorithm.update(self._observations)
        return {name.removeprefix("loss/"): value for name, value in metrics.items()}

    def train_mode(self) -> None:
        self.policy.train()

    def eval_mode(self) -> None:
        self.policy.eval()

    def get_policy(self) -> "RslRlPolicy":
        return RslRlPolicy(self.policy)

    def compile(self, mode: str | None = None) -> None:
        if mode is not None:
            self.policy.actor.compile(mode=mode)
            self.policy.critic.compile(mode=mode)

    def broadcast_parameters(self) -> None:
        for module in [self.policy] + ([self.rnd.network] if self.rnd else []):
            for tensor in module.state_dict().values():
                torch.distributed.broadcast(tensor, src=0)

    def save(self) -> dict:
        tensors, facts = self.algorithm.state()
        return {
            "actor_state_dict": self.policy.actor.state_dict(),
            "critic_state_dict": self.policy.critic.state_dict(),
            "optimizer_state_dict": {"tensors": tensors, "facts": facts},
        }

    def load(self, loaded_dict: dict, load_cfg: dict | None, strict: bool) -> bool:
        """Load a checkpoint; returns whether the runner continues its iteration count."""
        everything: dict = dict.fromkeys(("actor", "critic", "optimizer", "iteration"), True)
        wanted = everything if load_cfg is None else load_cfg
        for name, network in (("actor", self.policy.actor), ("critic", self.policy.critic)):
            if wanted.get(name):
                weights: dict[str, torch.Tensor] = loaded_dict[f"{name}_state_dict"]
                # mjlab's runner renames the weights that it loads, as if rsl_rl 4 had saved them.
                weights = {STD_NAMES.get(key, key): value for key, value in weights.items()}
                network.load_state_dict(weights, strict=strict)
        if wanted.get("optimizer"):
            state = loaded_dict["optimizer_state_dict"]
            current = self.algorithm.state()[0]
            # State per environment does not fit another number of environments, and it is reset
            # below in any case.
            tensors = {
                name: current[name]
                if name in current and current[name].shape != value.shape
                else value
                for name, value in state["tensors"].items()
            }
            self.algorithm.load_state(tensors, state["facts"])
            self.algorithm.episodes_cut()
        return bool(wanted.get("iteration", False))


class RslRlPolicy(nn.Module):
    """The interface that rsl_rl's runner expects of a policy: greedy actions, JIT and ONNX."""

    is_recurrent = False

    def __init__(self, policy: ActorCritic):
        super().__init__()
        self._policy = policy.deployable()
        self.actor = self._policy.actor

    def forward(self, obs: TensorDict) -> torch.Tensor:
        """Actions [N, A]."""
        return self._policy.act(obs)

    def reset(self, dones: torch.Tensor | None = None, hidden_state=None) -> None:
        """Clear the memory of the episodes that ended."""
        self._policy.reset(None if dones is None else dones.bool())

    @property
    def output_std(self) -> torch.Tensor:
        """Standard deviations of the actions, [1, A]; for discrete actions the entropy in nats."""
        device = next(self.actor.parameters()).device
        with torch.no_grad():
            x = torch.zeros(1, self.actor.width, device=device)
            outputs, _ = self.actor.step(x, self.actor.initial_memory(1))
            distribution = self.actor.distribution(outputs)
        return getattr(distribution, "std", distribution.entropy())

    def as_jit(self) -> typing.Any:
        return torch.jit.trace(RslRlExport(self.actor), torch.zeros(1, self.actor.width))

    def as_onnx(self, verbose: bool) -> nn.Module:
        return RslRlExport(self.actor)


class RslRlExport(nn.Module):
    """Greedy actions [1, A] from joined observations [1, O]. The normaliser is part of it."""

    is_recurrent = False
    input_names: typing.ClassVar = ["obs"]
    output_names: typing.ClassVar = ["actions"]

    def __init__(self, actor):
        super().__init__()
        if actor.memory is not None:
            raise ValueError(
                "rsl_rl can export only its own recurrent networks; save this policy and export it "
                "with rrf.runners.checkpoints.onnx_export"
            )
        # A copy, because mjlab's runner exports during training and moves the module to the CPU.
        self.actor = copy.deepcopy(actor).cpu()

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.actor.distribution(self.actor(obs)).mode

    def get_dummy_inputs(self) -> tuple[torch.Tensor]:
        """An input of the right shape."""
        return (torch.zeros(1, self.actor.width),)


def construct(
    owner: type, obs: TensorDict, env: typing.Any, cfg: dict, device: str
) -> RslRlAlgorithm:
    """Build the algorithm `owner` for rsl_rl's runner.

    Args:
        owner: PPO or a variant of it.
        env: An rsl_rl VecEnv.
        cfg: The runner's config, with "algorithm", "actor", "critic" and "obs_groups".

    Raises:
        ValueError: For a setting that does not exist in rrf; the message names the closest one.
    """
    settings = cfg["algorithm"]
    settings.pop("class_name", None)
    settings.setdefault("rnd_cfg", None)  # the runner reads it
    if settings.get("schedule") == "linear":
        raise ValueError(
            "algorithm.schedule is 'linear', but rsl_rl's runner does not report its progress; "
            "allowed: 'adaptive', 'fixed'"
        )
    algorithm_cfg = _config_class(owner).from_dict(_supported_settings(settings))
    interface = getattr(env, "interface", None) or Interface(
        observation_dims={name: value.shape[-1] for name, value in obs.items()},
        num_actions=env.num_actions,
    )
    mode = cfg.get("torch_compile_mode")
    if mode in ("reduce-overhead", "max-autotune"):  # rsl_rl's own algorithms refuse them, too
        raise ValueError(
            f"torch_compile_mode is '{mode}', whose CUDA graphs overwrite the outputs of the last "
            "pass; allowed: 'default', 'max-autotune-no-cudagraphs', None"
        )
    if cfg.get("policy_cfg"):
        policy_cfg = ActorCriticPackCfg.from_dict(cfg["policy_cfg"])
    else:
        policy_cfg = policy_config(cfg["actor"], cfg["critic"], cfg.get("obs_groups") or {})
    seed = cfg.get("seed", 0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        policy = policy_cfg.build(interface).to(device)
        rank = cfg["multi_gpu"]["global_rank"] if cfg.get("multi_gpu") else 0
        generator = torch.Generator(device).manual_seed(seed + rank)
        algorithm = owner(
            algorithm_cfg, policy, env.num_envs, cfg["num_steps_per_env"], generator, device
        )
    accelerate(algorithm)
    adapted = RslRlAlgorithm(algorithm)
    adapted.compile(mode)
    return adapted


def policy_config(actor: Mapping, critic: Mapping, obs_groups: Mapping) -> ActorCriticPackCfg:
    """Our policy config for rsl_rl's dicts of actor and critic."""
    distribution = dict(actor.get("distribution_cfg") or {})
    _require_known(distribution, _DISTRIBUTION, "actor.distribution_cfg")
    if not distribution.get("learn_std", True):
        raise ValueError("actor.distribution_cfg.learn_std is False, allowed: True")
    kind = distribution.pop("class_name", "GaussianDistribution").rpartition(":")[-1]
    if kind.rpartition(".")[-1] != "GaussianDistribution":
        raise ValueError(f"actor.distribution_cfg is a {kind}; allowed: GaussianDistribution")
    low, high = distribution.get("std_range") or (1e-3, 10.0)
    init_std = distribution.get("init_std", 1.0)
    return ActorCriticPackCfg(
        actor_cfg=StateIndStdActorCfg(
            **_network(actor, obs_groups.get("actor")),
            use_log_std=distribution.get("std_type", "scalar") == "log",
            init_std=init_std,
            min_std=min(max(low, 1e-6), init_std),
            max_std=max(high, init_std),
        ),
        critic_cfg=VNetworkCfg(**_network(critic, obs_groups.get("critic"))),
    )


def _network(model: Mapping, groups: list[str] | None) -> dict[str, typing.Any]:
    name = model.get("class_name", "MLPModel").replace(":", ".").rpartition(".")[-1]
    if name not in ("MLPModel", "RNNModel"):
        raise ValueError(
            f"class_name '{name}' has no counterpart in rrf; allowed: MLPModel, RNNModel"
        )
    _require_known(model, _MODEL, "a model's config")
    memory = None
    if name == "RNNModel":
        memory = MemoryCfg(
            kind=model.get("rnn_type", "lstm"),
            hidden_size=model.get("rnn_hidden_dim", 256),
            num_layers=model.get("rnn_num_layers", 1),
        )
    return {
        "backbone_cfg": _backbone(model),
        "observation_groups": list(groups) if groups else None,
        "obs_normalization": model.get("obs_normalization", False),
        "memory": memory,
    }


def _backbone(model: Mapping) -> MLPCfg:
    activation = model.get("activation", "elu")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"unknown activation '{activation}'{did_you_mean(activation, ACTIVATIONS)}"
        )
    return plain_mlp(list(model.get("hidden_dims", (256, 256, 256))), ACTIVATIONS[activation])


def _require_known(settings: Mapping, names: set[str], where: str) -> None:
    for name in settings:
        if name not in names:
            raise ValueError(f"{where} has no field '{name}' in rrf{did_you_mean(name, names)}")


def _supported_settings(settings: Mapping) -> dict[str, typing.Any]:
    """The settings that our configs have. The others must have the single supported value."""
    for name, only in ONLY.items():
        if settings.get(name, only) != only:
            raise ValueError(f"algorithm.{name} is {settings[name]!r}, allowed: {only!r}")
    return {name: value for name, value in settings.items() if name not in ONLY}


def _config_class(owner: type) -> type[PPOCfg]:
    """PPOCfg for PPO, CAPSCfg for CAPS; for a class outside rrf, the config of its base class."""
    names = [f"{base.__name__}Cfg" for base in owner.__mro__]
    return next(getattr(algorithms, name) for name in names if hasattr(algorithms, name))
