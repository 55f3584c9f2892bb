"""Configs of policies that see images, and of action heads. This file does not import torch."""

import typing
from collections.abc import Sequence
from pathlib import Path

from rrf.config import Cfg, configclass, require_at_least_one, require_positive
from rrf.data.dataset.action_representation import Representation
from rrf.data.dataset.history import Past
from rrf.data.schema import Schema
from rrf.networks.configs import ImageEncoderCfg, InstructionEncoderCfg, MLPCfg
from rrf.networks.vlm.configs import Ability

TimeConvention = typing.Literal["openpi", "gr00t"]
"""openpi: time 1 is noise, velocity is noise - action. gr00t: time 0 is noise, velocity is action -
noise."""
NoiseMethod = typing.Literal["flow_sde", "flow_cps", "reinflow"]


def require_temperature(temperature: float) -> None:
    """Raise ValueError unless a head can sample with this temperature."""
    if temperature <= 0:
        raise ValueError(
            f"temperature is {temperature}, allowed: above 0 (sample greedily instead)"
        )


def require_widths(hidden_features: Sequence[int]) -> None:
    """Raise ValueError unless these are the widths of a head's hidden layers."""
    if not hidden_features or min(hidden_features) < 1:
        raise ValueError(
            f"hidden_features is {hidden_features}, allowed: one width or more, each of 1 or more"
        )


@configclass
class ActionHeadCfg(Cfg):
    """The last part of a policy: what it predicts about an action chunk, and how it is trained."""

    reads: typing.ClassVar[Ability] = "pooled"
    """What the head reads of a backbone. A head that reads "pooled" is built with (number of
    features, chunk_length, action_dim) and is given features [B, F]. Any other head is built with
    (backbone, chunk_length, action_dim, state_dim) and is given a `rrf.policies.vla.context`."""
    has_assets: typing.ClassVar[bool] = False
    """Whether the head has files of its own. It is then also built with `assets`, as a backbone
    is, and its `assets()` are saved with a checkpoint."""
    has_embodiments: typing.ClassVar[bool] = False
    """Whether the head has parts of its own for each embodiment."""
    takes_robots: typing.ClassVar[bool] = True
    """Whether the head can leave out dimensions that a row's robot does not have."""

    @property
    def lacks_density(self) -> str | None:
        """Why its actions have no log-probability, and what to set; None if they have one."""
        return None

    @property
    def sees_state(self) -> bool:
        """Whether the head reads the state itself, not only what a prompt says of it."""
        return self.reads != "language"

    def embodiment_slot(self, tag: str | None) -> int:
        """The number of an embodiment in a head that has parts of its own for each; else 0.

        Raises:
            ValueError: If the head does not know the tag.
        """
        if tag is not None:
            raise ValueError(
                f"embodiment is '{tag}', but {type(self).__name__} has no parts for embodiments; "
                "leave it out, or choose a head that has them (GrootHeadCfg)"
            )
        return 0


@configclass(builds="rrf.policies.vla.action_heads:RegressionHead")
class RegressionHeadCfg(ActionHeadCfg):
    """Predicts the chunk itself. It has no density, so policy gradients cannot train it."""

    huber_beta: float = 0.1
    """Error, in normalised action units, above which the loss is linear instead of quadratic."""

    @property
    def lacks_density(self) -> str | None:
        return (
            "a regression head has no density; use a token head (DiscreteTokenHeadCfg), a Gaussian "
            "head (GaussianHeadCfg) or a flow-matching head (FlowMatchingHeadCfg)"
        )

    def __post_init__(self):
        require_positive(self, "huber_beta")


@configclass(builds="rrf.policies.vla.action_heads:DiscreteTokenHead")
class DiscreteTokenHeadCfg(ActionHeadCfg):
    """Predicts one token per step and dimension, all at once (arXiv:2502.19645)."""

    num_bins: int = 32
    """Number of tokens. Their values are evenly spaced over [-1, 1], in normalised action units."""
    temperature: float = 1.0
    """Divides the logits, both for sampling and in every log-probability."""
    label_sigma_bins: float = 1.0
    """Standard deviation, in bins, of the soft label around the demonstrated value. 0 puts the
    whole label on the nearest bin."""
    label_smoothing: float = 0.02
    """Fraction of the label that is spread evenly over all bins."""

    def __post_init__(self):
        if not 2 <= self.num_bins <= 256:
            raise ValueError(f"num_bins is {self.num_bins}, allowed: 2 to 256")
        require_temperature(self.temperature)
        if self.label_sigma_bins < 0 or not 0 <= self.label_smoothing < 1:
            raise ValueError(
                f"label_sigma_bins is {self.label_sigma_bins} and label_smoothing is "
                f"{self.label_smoothing}, allowed: label_sigma_bins of 0 or more, and "
                "label_smoothing from 0 to below 1"
            )


@configclass
class GaussianDensityCfg(ActionHeadCfg):
    """A normal distribution around a prediction, whose std does not depend on the observation."""

    initial_std: float = 0.3
    """Initial standard deviation, in normalised action units."""
    min_std: float = 0.05
    """Lower bound of the standard deviation, before the temperature is applied."""
    max_std: float = 1.0
    """Upper bound of the standard deviation, before the temperature is applied."""
    temperature: float = 1.0
    """Multiplies the standard deviation, both for sampling and in every log-probability."""
    persistent_share: float = 0.0
    """Fraction of the noise's variance that is constant during an episode; see GaussianDensity."""

    def __post_init__(self):
        if not 0 < self.min_std <= self.initial_std <= self.max_std:
            raise ValueError(
                f"min_std, initial_std, max_std are {self.min_std}, {self.initial_std}, "
                f"{self.max_std}, allowed: above 0 and in increasing order"
            )
        require_temperature(self.temperature)
        if not 0 <= self.persistent_share <= 1:
            raise ValueError(f"persistent_share is {self.persistent_share}, allowed: 0 to 1")


@configclass(builds="rrf.policies.vla.action_heads:GaussianHead")
class GaussianHeadCfg(GaussianDensityCfg):
    """Predicts the mean of a normal distribution whose std does not depend on the observation."""

    huber_beta: float = 0.1
    """Error of the mean, in normalised action units, above which the supervised loss is linear
    instead of quadratic."""

    def __post_init__(self):
        super().__post_init__()
        require_positive(self, "huber_beta")


@configclass
class FlowHeadCfg(ActionHeadCfg):
    """Denoises a chunk in a few steps (arXiv:2210.02747). One of them or all of them are random
    (arXiv:2510.25889)."""

    num_denoise_steps: int = 4
    """Number of denoising steps from noise to action."""
    noise_method: NoiseMethod = "flow_cps"
    """Method that makes a step random: an SDE (flow_sde), coefficients-preserving sampling
    (flow_cps), or a learned std (reinflow)."""
    noise_level: float = 0.5
    """Amount of randomness for flow_sde and flow_cps. reinflow learns it instead."""
    stochastic_steps: typing.Literal["one", "all"] = "one"
    """one: a single denoising step is random, chosen anew for every sample. all: every step is
    random."""
    start_noise: float = 1.0
    """Standard deviation of the noise that sampled chunks start from; in training it is 1. No
    update can change what this noise does to an action, so that less of it helps policy gradients.
    0 starts like a greedy chunk."""
    time_convention: TimeConvention = "openpi"
    """Whether time 1 (openpi) or time 0 (gr00t) is noise, and the sign of the velocity. Pretrained
    heads exist in both conventions."""
    std_hidden_features: list[int] = [128, 64]
    """Width of each hidden layer of reinflow's std network."""
    min_std: float = 0.08
    """Lower bound of reinflow's std, in normalised action units."""
    max_std: float = 0.16
    """Upper bound of reinflow's std, in normalised action units."""
    num_noise_draws: int = 1
    """Times at which the loss is computed for each frame. The backbone runs once for all of
    them."""
    trains_padding: bool = True
    """For heads with more dimensions than the robot: train the other ones, towards 0."""

    def __post_init__(self):
        require_at_least_one(self, "num_noise_draws")
        least = 2 if self.noise_method == "flow_cps" else 1
        if self.num_denoise_steps < least:
            raise ValueError(
                f"num_denoise_steps is {self.num_denoise_steps}, allowed for {self.noise_method}: "
                f"{least} or more"
            )
        most = 1 if self.noise_method == "flow_cps" else float("inf")
        if not 0 < self.noise_level <= most:
            raise ValueError(
                f"noise_level is {self.noise_level}, allowed: above 0, and up to 1 for flow_cps"
            )
        if not 0 <= self.start_noise <= 1:
            raise ValueError(f"start_noise is {self.start_noise}, allowed: 0 to 1")
        if min(self.std_hidden_features, default=1) < 1:
            raise ValueError(
                f"std_hidden_features is {self.std_hidden_features}, allowed: widths of 1 or more"
            )
        if not 0 < self.min_std <= self.max_std:
            raise ValueError(
                f"min_std is {self.min_std} and max_std is {self.max_std}, allowed: above 0, and "
                "min_std not above max_std"
            )


@configclass(builds="rrf.policies.vla.mlp_flow_head:FlowMatchingHead")
class FlowMatchingHeadCfg(FlowHeadCfg):
    """Denoises a chunk by an MLP over the features, the noisy chunk and the time."""

    hidden_features: list[int] = [256, 256]
    """Width of each hidden layer of the velocity network."""
    env_chunk_length: int | None = None
    """Number of steps of the chunk that are executed; null for all. The others have no
    log-probability."""
    env_action_dim: int | None = None
    """Number of action dimensions that the environment has; null for all. The others have no
    log-probability."""

    def __post_init__(self):
        super().__post_init__()
        require_widths(self.hidden_features)
        for name in ("env_chunk_length", "env_action_dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, allowed: 1 or more, or null for all")


@configclass
class ValueHeadCfg(Cfg):
    """A critic on the policy's features. It predicts the return of the rest of an episode."""

    level: typing.Literal["chunk", "action"] = "chunk"
    """One value per chunk, or one value per action of the chunk."""
    detaches: bool = True
    """Detach the features, so that the value loss does not train them."""
    mlp: MLPCfg = MLPCfg(
        hidden_features=[256, 256], activations=[[("ReLU", {})], [("ReLU", {})], []]
    )
    """Network from the features to the values."""


@configclass
class PolicyCfg(Cfg):
    """The inputs and outputs of a policy. Dataset and environment must match them."""

    cameras: list[str] = ["corner2"]
    """Camera names, in the order in which the policy reads them. Empty: the dataset's."""
    image_size: tuple[int, int] = (64, 64)
    """Height and width of each image in pixels. 0: the dataset's."""
    state_dim: int = 4
    """Dimensions of the proprioceptive state. 0: the dataset's."""
    action_dim: int = 4
    """Dimensions of one action. 0: the dataset's."""
    chunk_length: int = 2
    """Number of actions that are predicted and executed per observation."""

    def __post_init__(self):
        require_at_least_one(self, "chunk_length")
        for name in ("state_dim", "action_dim"):
            if getattr(self, name) < 0:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, allowed: 1 or more, or 0 for the dataset's"
                )

    def fitted(self, schema: Schema) -> typing.Self:
        """A copy in which the dataset fills in what is not given: cameras, image size, and the
        dimensions of state and action."""
        return self._filled(
            list(schema.cameras),
            schema.image_size,
            len(schema.state.names),
            len(schema.action.names),
        )

    def fitted_to(self, other: "PolicyCfg") -> typing.Self:
        """A copy in which another policy fills in what is not given."""
        return self._filled(other.cameras, other.image_size, other.state_dim, other.action_dim)

    def _filled(
        self,
        cameras: list[str],
        image_size: tuple[int, int],
        state_dim: int,
        action_dim: int,
    ) -> typing.Self:
        seen = list(self.cameras or cameras)
        return self.replace(
            cameras=seen,
            image_size=self.image_size if seen and min(self.image_size) else image_size,
            state_dim=self.state_dim or state_dim,
            action_dim=self.action_dim or action_dim,
        )

    def require_dims(self) -> None:
        """Raise ValueError if something of the inputs or outputs is not known yet."""
        sizes = {"state_dim": self.state_dim, "action_dim": self.action_dim}
        sizes |= {"image_size": min(self.image_size), "cameras": len(self.cameras)}
        lacking = [name for name, size in sizes.items() if not size]
        if lacking:
            raise ValueError(
                f"the policy's {', '.join(lacking)} are not known; train it on a dataset, which "
                "fills them in, or give them. From a dataset without images learns the preset "
                "compact-state"
            )

    def require_one_robot(self) -> None:
        """Raise ValueError if the policy is in training on several robots and acts as none."""

    @property
    def representation(self) -> Representation:
        """How the policy expresses actions."""
        return Representation()

    @property
    def reads_advantage(self) -> bool:
        """Whether the policy is told how good an action was (`Observation.advantage`)."""
        return False

    @property
    def lacks_density(self) -> str | None:
        """Why its actions have no log-probability, and what to set; None if they have one."""
        head = getattr(self, "head", None)
        return head.lacks_density if isinstance(head, ActionHeadCfg) else None

    @property
    def words(self) -> list[str] | None:
        """The words of instructions that it knows; None if any."""
        return None

    @property
    def past(self) -> Past:
        """What the policy sees of what came before."""
        return Past()

    @property
    def absent_weights(self) -> tuple[str, ...]:
        """How the names of weights begin that a checkpoint lacks because a part of the policy is
        absent; a training that starts from it has new ones."""
        return ()

    def rebuild(self, norm_stats: typing.Mapping, checkpoint: Path):
        """Build the policy of a checkpoint, without its weights."""
        return self.build(norm_stats)


@configclass(builds="rrf.policies.vla.compact:CompactVLA")
class CompactVLACfg(PolicyCfg):
    """A vision-language-action policy of 1.4 million parameters, for 64 px images on a CPU."""

    image_encoder: ImageEncoderCfg = ImageEncoderCfg()
    """One encoder for all cameras."""
    instruction_encoder: InstructionEncoderCfg = InstructionEncoderCfg()
    """Encoder of the instruction. Its vocabulary is part of the policy, because a word must always
    have the same vector."""
    state_features: int = 64
    """Width of the layer that reads the proprioceptive state."""
    trunk: MLPCfg = MLPCfg(
        hidden_features=[256], activations=[[("ReLU", {})], [("LayerNorm", {}), ("ReLU", {})]]
    )
    """Joins image, state and instruction."""
    features: int = 256
    """Width of the joined feature vector, which the head reads."""
    head: ActionHeadCfg = RegressionHeadCfg()
    """The action head."""
    value_head: ValueHeadCfg | None = None
    """The critic. null for none: imitation and GRPO need no critic."""
    state_normalization: typing.Literal["mean_std", "min_max", "quantile"] = "mean_std"
    """Statistics of the dataset that normalise the state."""
    action_normalization: typing.Literal["mean_std", "min_max", "quantile"] = "min_max"
    """Statistics of the dataset that normalise the action; min_max maps it to [-1, 1], the range of
    tokens."""

    @property
    def words(self) -> list[str]:
        return self.instruction_encoder.vocabulary
