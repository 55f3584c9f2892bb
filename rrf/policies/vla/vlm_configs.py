"""The config of policies that join any backbone with any head that can read it. No torch here."""

import typing
from pathlib import Path

from rrf.config import configclass
from rrf.data.action_representation import Representation
from rrf.data.history import Past
from rrf.data.transforms import Mode, ModeOfDimension
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.networks.vlm.configs import ABILITIES, BackboneCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.configs import ActionHeadCfg, PolicyCfg, RegressionHeadCfg, ValueHeadCfg


@configclass(builds="rrf.policies.vla.vlm:VLMPolicy")
class VLMPolicyCfg(PolicyCfg):
    """A vision-language-action policy: a backbone and a head."""

    cameras: list[str] = []
    """Camera names, in the order in which the policy reads them. Empty: the dataset's."""
    image_size: tuple[int, int] = (0, 0)
    """Height and width of recorded images in pixels. 0: the dataset's. The backbone sees
    `backbone.image.size`."""
    state_dim: int = 0
    """Dimensions of the proprioceptive state. 0: the dataset's."""
    action_dim: int = 0
    """Dimensions of one action. 0: the dataset's."""
    backbone: BackboneCfg = MockBackboneCfg()
    """The vision-language model."""
    head: ActionHeadCfg = RegressionHeadCfg()
    """The action head. It decides what is read of the backbone."""
    embodiment: str | None = None
    """Tag of the robot, for a head with encoders of its own for each, e.g. gr1. null: a new
    robot."""
    prompt: str = "{instruction}"
    """The prompt. {instruction} stands for the instruction; {state}, if there, for the normalised
    state in 256 bins, as in pi0.5; {advantage}, if there, for "Advantage: positive" or negative, as
    in pi*0.6."""
    prompt_state_dims: int = 0
    """Dimensions to which the state in the prompt is padded with zeros: 32 in lerobot's pi0.5. 0
    for no padding, as in openpi."""
    pooling: typing.Literal["mean", "last"] = "mean"
    """For heads that read one vector: the mean of all tokens, or the last token."""
    state_features: int = 64
    """For heads that read one vector: width of the layer that reads the state."""
    trunk: MLPCfg = plain_mlp([256], "GELU")
    """For heads that read one vector: joins the backbone's vector and the state."""
    features: int = 256
    """For heads that read one vector, and for the critic: width of the joined vector."""
    value_head: ValueHeadCfg | None = None
    """The critic. null for none: imitation and GRPO need no critic."""
    state_normalization: Mode = "mean_std"
    """Statistics of the dataset that normalise the state."""
    action_normalization: Mode = "min_max"
    """Statistics of the dataset that normalise the action."""
    state_modes: dict[int, ModeOfDimension] = {}
    """Dimensions of the state with a normalisation of their own, e.g. {6: none}."""
    action_modes: dict[int, ModeOfDimension] = {}
    """Dimensions of the action with a normalisation of their own."""
    relative_actions: list[tuple[int, int]] = []
    """Pairs of an action dimension and the state dimension that measures the same: these actions
    are predicted relative to the state when the chunk begins."""
    delta_actions: list[tuple[int, int]] = []
    """Pairs as above: these actions are predicted as differences to the step before; the first one
    to the state."""

    past_images: int = 0
    """Past images of each camera that the policy sees as further views."""
    past_states: int = 0
    """Past states that the policy sees beside the present one."""
    past_stride: int = 1
    """Steps from one of these frames to the next. A multiple of the steps that are executed per
    observation (execute_steps of a protocol, env.chunk_length in reinforcement learning)."""

    @property
    def past(self) -> Past:
        """What the policy sees of what came before."""
        return Past(self.past_images, self.past_states, self.past_stride)

    @property
    def seen_state_dim(self) -> int:
        """Dimensions of the present and all past states."""
        return self.state_dim * (1 + self.past_states)

    @property
    def representation(self) -> Representation:
        """How actions are expressed."""
        return Representation(tuple(self.relative_actions), tuple(self.delta_actions))

    @property
    def reads_advantage(self) -> bool:
        return "{advantage}" in self.prompt

    def rebuild(self, norm_stats: typing.Mapping, checkpoint: Path):
        return self.build(norm_stats, assets=checkpoint)

    def __post_init__(self):
        super().__post_init__()
        if self.head.reads not in self.backbone.abilities:
            have = ", ".join(sorted(self.backbone.abilities))
            raise ValueError(
                f"{type(self.head).__name__} reads {ABILITIES[self.head.reads]}, which "
                f"{type(self.backbone).__name__} does not have (it has: {have}); choose another "
                "head or backbone"
            )
        self.representation  # noqa: B018 (it checks itself)
        if self.past.states and not self.head.sees_state:
            raise ValueError(
                f"past_states is {self.past_states}, but this {type(self.head).__name__} reads no "
                "state; say past_states=0 (past_images are seen by every head)"
            )
        if self.prompt_state_dims < 0:
            raise ValueError(f"prompt_state_dims is {self.prompt_state_dims}, allowed: 0 or more")
        self.head.embodiment_slot(self.embodiment)
        if "{instruction}" not in self.prompt:
            raise ValueError(
                f"prompt is '{self.prompt}', allowed: a text with {{instruction}}, and with "
                "{state} if the state is a part of it"
            )
        tokenizer = self.backbone.tokenizer
        lacking = {"positive", "negative"} - set(tokenizer.words)
        if self.reads_advantage and tokenizer.files is None and lacking:
            raise ValueError(
                "the prompt holds {advantage}, but the policy would not know the words "
                f"{', '.join(sorted(lacking))}; add advantage, negative and positive to "
                "policy.backbone.tokenizer.words"
            )
