"""The config of a policy in two parts that can run apart: System 2 and System 1. No torch here."""

import math
import typing

from rrf.config import Cfg, configclass, require_at_least_one, require_positive
from rrf.data.schema import Schema
from rrf.networks.configs import ImageEncoderCfg
from rrf.networks.vlm.configs import BackboneCfg, ImageRuleCfg
from rrf.policies.vla.configs import ActionHeadCfg, FlowMatchingHeadCfg, PolicyCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg

SYSTEM1 = (
    *("age_encoder.", "fast_encoder.", "fast_projection.", "state_encoder.", "trunk."),
    *("head.", "value_head."),
)
SYSTEM2 = ("backbone.", "compressor.")
"""How the names of the weights of each part begin."""
_READABLE = ("pooled", "tokens")
_ROUNDING = 1e-6  # of an age in seconds, which steps and a rate in Hz make


@configclass
class FastViewCfg(Cfg):
    """What System 1 sees of a camera itself, each time it acts."""

    camera: str = ""
    """Name of the camera. Empty: the first one of the policy."""
    image: ImageRuleCfg = ImageRuleCfg(size=(64, 64))
    """How its images are brought to the size that the encoder sees."""
    encoder: ImageEncoderCfg = ImageEncoderCfg(out_features=64)
    """The encoder; System 2's features modulate its last convolutions."""


@configclass(builds="rrf.policies.vla.psi0_parts:AbsentBackbone")
class AbsentBackboneCfg(BackboneCfg):
    """In the place of System 2, where only System 1 is."""

    fingerprint: str = ""
    """Of the System 2 that System 1 was trained with: `rrf models join` takes no other."""

    @property
    def width(self) -> int:
        return 1


@configclass(builds="rrf.policies.vla.psi0_parts:AbsentHead")
class AbsentHeadCfg(ActionHeadCfg):
    """In the place of System 1, where only System 2 is."""

    reads: typing.ClassVar = "tokens"


@configclass(builds="rrf.policies.vla.psi0:Psi0Policy")
class Psi0PolicyCfg(VLMPolicyCfg):
    """System 2, a backbone that sees images and instruction and says little at a low rate, and
    System 1, a head that acts on what it said some time ago and on a fast view of its own."""

    head: ActionHeadCfg = FlowMatchingHeadCfg()
    """System 1's head: one that reads a vector or tokens."""
    feature_tokens: int = 4
    """Feature vectors that System 2 sends. 1: that of all tokens, pooled. More: those of so many
    learned queries to them."""
    pooling: typing.Literal["mean", "last"] = "mean"
    """For one feature vector: the mean of all tokens, or the last token."""
    feature_width: int = 64
    """Width of a feature vector."""
    feature_dtype: typing.Literal["float32", "float16"] = "float32"
    """Number format in which features are sent. System 1 is trained on numbers so rounded."""
    max_feature_age_s: float = 1.0
    """Age in seconds above which System 1 refuses features. It is trained on all ages up to it."""
    control_hz: float = 0.0
    """Actions per second. 0: the dataset's."""
    fast_view: FastViewCfg | None = None
    """A camera that System 1 sees itself. null: of the present it sees the state only."""
    feature_period: int = 1
    """Where episodes are played, in evaluation and reinforcement learning, System 2 looks at each
    so many-th chunk only; its features hold until the next look."""
    freezes_system2: bool = False
    """Train System 1 alone. Otherwise one backward pass trains both."""
    action_names: list[str] = []
    """Names of the dimensions of an action. Empty: the dataset's."""
    action_units: list[str] = []
    """Units of these dimensions. Empty: the dataset's."""

    @property
    def max_age_steps(self) -> int:
        """The most steps that features may be old."""
        return math.floor(self.max_feature_age_s * self.control_hz * (1 + _ROUNDING))

    @property
    def age_limit_s(self) -> float:
        """`max_feature_age_s`, and what rounding may add."""
        return self.max_feature_age_s * (1 + _ROUNDING)

    @property
    def fast_camera(self) -> str | None:
        """The camera that System 1 sees."""
        if self.fast_view is None:
            return None
        return self.fast_view.camera or self.cameras[0]

    @property
    def has_system1(self) -> bool:
        return not isinstance(self.head, AbsentHeadCfg)

    @property
    def has_system2(self) -> bool:
        return not isinstance(self.backbone, AbsentBackboneCfg)

    @property
    def absent_weights(self) -> tuple[str, ...]:
        return () if self.has_system1 else SYSTEM1

    def held_too_long(self, steps: int) -> str | None:
        """Why `feature_period` cannot be played with an observation every `steps` steps; None if it
        can."""
        oldest = (self.feature_period - 1) * steps
        if not self.control_hz or oldest <= self.max_age_steps:
            return None
        return (
            f"holds features for {self.feature_period} chunks of {steps} steps (feature_period), "
            f"the last time {oldest / self.control_hz:g} s old, but max_feature_age_s is "
            f"{self.max_feature_age_s:g}; lower the first, or train with a higher limit"
        )

    def fitted(self, schema: Schema) -> typing.Self:
        """See `PolicyCfg.fitted`.

        Raises:
            ValueError: If the dataset has another rate or other names or units of actions.
        """
        told = {
            "control_hz": float(schema.fps),
            "action_names": list(schema.action.names),
            "action_units": list(schema.action.units),
        }
        for name, value in told.items():
            given = getattr(self, name)
            if given and given != value:
                raise ValueError(
                    f"policy.{name} is {given}, but the dataset's is {value}; leave it out, or "
                    "take another dataset"
                )
        return super().fitted(schema).replace(**told)

    def fitted_to(self, other: PolicyCfg) -> typing.Self:
        fitted = super().fitted_to(other)
        if not isinstance(other, Psi0PolicyCfg):
            return fitted
        names = ("control_hz", "action_names", "action_units")
        return fitted.replace(**{n: getattr(self, n) or getattr(other, n) for n in names})

    def require_system1(self) -> None:
        """Raise ValueError if only System 2 is here."""
        if not self.has_system1:
            raise ValueError(
                "this is System 2 alone, which does not act: ask it for features (see), or join it "
                "with a System 1: rrf models join SYSTEM2 SYSTEM1 --out DIRECTORY"
            )

    def require_system2(self) -> None:
        """Raise ValueError if only System 1 is here."""
        if not self.has_system2:
            raise ValueError(
                "this is System 1 alone, which sees no instruction: give it features (act), or "
                "join it with its System 2: rrf models join SYSTEM2 SYSTEM1 --out DIRECTORY"
            )

    def require_dims(self) -> None:
        super().require_dims()
        if not self.control_hz:
            raise ValueError(
                "the policy's control_hz is not known, without which no age is; train it on a "
                "dataset, which fills it in, or give it"
            )

    def __post_init__(self):
        super().__post_init__()
        for name in ("feature_tokens", "feature_width", "feature_period"):
            require_at_least_one(self, name)
        require_positive(self, "max_feature_age_s")
        if self.control_hz < 0:
            raise ValueError(
                f"control_hz is {self.control_hz}, allowed: above 0, or 0 for the dataset's"
            )
        if self.head.reads not in _READABLE:
            raise ValueError(
                f"{type(self.head).__name__} reads more of System 2 than the features that it "
                "sends; choose a head that reads a vector or tokens, e.g. RegressionHeadCfg, "
                "DiffusionHeadCfg, FlowMatchingHeadCfg or DiTHeadCfg"
            )
        if "{state}" in self.prompt:
            raise ValueError(
                f"prompt is '{self.prompt}', but System 2 sees no state; leave {{state}} out"
            )
        if self.past_images:
            raise ValueError(
                f"past_images is {self.past_images}, but System 2 sees one moment; say "
                "past_images=0 (System 1 may see past_states)"
            )
        if self.robots:
            raise ValueError(
                f"robots has {len(self.robots)}, but a Psi0PolicyCfg is the policy of one robot; "
                "leave it out"
            )
        if self.cameras and self.fast_camera not in (None, *self.cameras):
            raise ValueError(
                f"fast_view.camera is '{self.fast_camera}', but the policy's cameras are: "
                f"{', '.join(self.cameras)}"
            )
