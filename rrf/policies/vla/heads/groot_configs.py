"""The config of GR00T's action head, its published sizes, and its embodiments. No torch here.

Which encoder and decoder belong to an embodiment's tag: for N1.5,
gr00t/data/embodiment_tags.py of NVIDIA/Isaac-GR00T (branch n1.5-release); for N1.7,
`N1_7_EMBODIMENT_MAPPING` of the port in huggingface/lerobot. A published N1.7 checkpoint holds the
same table as embodiment_id.json.
"""

import typing
from collections.abc import Mapping

from rrf.config import configclass, require_at_least_one
from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.configs import Ability
from rrf.policies.vla.configs import FlowHeadCfg, TimeConvention

GrootVersion = typing.Literal["n15", "n17"]

NEW = "new_embodiment"
SLOTS: dict[GrootVersion, dict[str, int]] = {
    "n15": {NEW: 31, "agibot_genie1": 26, "gr1": 24, "oxe_droid": 17},
    "n17": {
        NEW: 10,
        "libero_sim": 2,
        "oxe_droid_relative_eef_relative_joint": 24,
        "real_g1_relative_eef_relative_joints": 25,
        "real_r1_pro_sharpa_relative_eef": 26,
        "real_r1_pro_sharpa_relative_eef_human": 26,
        "real_r1_pro_sharpa_relative_eef_maxinsights": 26,
        "real_r1_pro_sharpa_relative_eef_mecka": 26,
        "simpler_env_google": 0,
        "simpler_env_widowx": 1,
        "unitree_g1_full_body_with_waist_height_nav_cmd": 25,
        "xdof_relative_eef_relative_joint": 27,
        "xdof_relative_eef_relative_joint_subtask": 27,
    },
}


def slot_of(tag: str | None, slots: Mapping[str, int], num_slots: int) -> int:
    """The number of a tag; no tag means a new embodiment.

    Raises:
        ValueError: If the tag is unknown, or if the head has too few encoders for it.
    """
    tag = NEW if tag is None else tag
    if tag not in slots:
        raise ValueError(
            f"embodiment is '{tag}', known: {', '.join(sorted(slots))}; a tag of your own goes "
            "into policy.head.embodiments, with its number"
        )
    if slots[tag] >= num_slots:
        raise ValueError(
            f"embodiment '{tag}' has number {slots[tag]}, but num_embodiments is {num_slots}; give "
            f"it a number below that in policy.head.embodiments"
        )
    return slots[tag]


@configclass(builds="rrf.policies.vla.heads.groot:GrootHead")
class GrootHeadCfg(FlowHeadCfg):
    """GR00T's action head (arXiv:2503.14734): a diffusion transformer that attends to a backbone's
    tokens, with encoders and decoders of state and action for each embodiment. The defaults are the
    sizes of N1.5; `n17_head` has those of N1.7."""

    reads: typing.ClassVar[Ability] = "tokens"
    has_embodiments: typing.ClassVar[bool] = True

    version: GrootVersion = "n15"
    """n15: future tokens, all tokens of the backbone are attended to. n17: no future tokens; blocks
    attend to text and to images in turn."""
    time_convention: TimeConvention = "gr00t"
    """GR00T's: time 0 is noise, and the velocity is action - noise."""
    trains_padding: bool = False
    """Train the dimensions that the robot does not have, towards 0."""
    dit: DiTCfg = DiTCfg(num_layers=16, num_heads=32, head_width=48, dropout=0.2)
    """The diffusion transformer."""
    hidden_features: int = 1024
    """Width of the hidden layers of the encoders and decoders, and of what the transformer gives
    the decoders."""
    max_state_dim: int = 64
    """Width that the state is padded to."""
    max_action_dim: int = 32
    """Width that the action is padded to."""
    num_embodiments: int = 32
    """Number of encoders and decoders."""
    embodiments: dict[str, int] = {}
    """Further embodiment tags and the number of their encoders and decoders, beside those of the
    published model. A tag that is given here overrides the published number."""
    num_future_tokens: int = 32
    """Learned tokens between state and action; only n15 has them."""
    max_steps: int = 1024
    """Number of learned positions; no chunk can be longer."""
    vl_layers: int = 4
    """Blocks of self-attention over the backbone's tokens, before they are attended to."""
    vl_heads: int = 32
    """Heads of these blocks. The width of the backbone must be divisible by them."""
    vl_dropout: float = 0.2
    """Dropout in these blocks."""
    state_dropout: float = 0.0
    """Share of the frames of a training batch whose state is hidden."""
    reads_padding: bool = False
    """Attend to the padding among the backbone's tokens, as the original does (n15 everywhere, n17
    in the self-attention). What a row gives then depends on how long the prompts beside it are. A
    row without padding is the same either way."""
    attend_text_every: int = 2
    """n17: of so many blocks that attend to the backbone, the first attends to text, the others to
    images."""
    num_time_buckets: int = 1000
    """The time is rounded down to one of so many steps."""
    noise_beta: tuple[float, float] = (1.5, 1.0)
    """Parameters of the beta distribution that training times come from."""
    noise_scale: float = 0.999
    """Constant s of the training times: (s - beta) / s in n15, (1 - beta) s in n17."""
    disable_dropout: bool = False
    """No dropout of any kind, also in training."""

    @property
    def tags(self) -> dict[str, int]:
        """All known embodiment tags and their numbers."""
        return SLOTS[self.version] | self.embodiments

    def embodiment_slot(self, tag: str | None) -> int:
        return slot_of(tag, self.tags, self.num_embodiments)

    def __post_init__(self):
        super().__post_init__()
        if self.time_convention != "gr00t":
            raise ValueError(f"time_convention is {self.time_convention}, allowed: gr00t")
        sizes = ("hidden_features", "max_state_dim", "max_action_dim", "num_embodiments")
        sizes += ("max_steps", "vl_heads", "attend_text_every", "num_time_buckets")
        require_at_least_one(self, *sizes)
        if min(self.num_future_tokens, self.vl_layers) < 0:
            raise ValueError(
                f"num_future_tokens is {self.num_future_tokens} and vl_layers is "
                f"{self.vl_layers}, allowed: 0 or more"
            )
        if not 0 <= self.state_dropout < 1 or not 0 <= self.vl_dropout < 1:
            raise ValueError(
                f"state_dropout is {self.state_dropout} and vl_dropout is {self.vl_dropout}, "
                "allowed: 0 to below 1"
            )
        if min(self.noise_beta) <= 0 or not 0 < self.noise_scale <= 1:
            raise ValueError(
                f"noise_beta is {self.noise_beta} and noise_scale is {self.noise_scale}, allowed: "
                "above 0, and noise_scale up to 1"
            )
        for tag, slot in self.embodiments.items():
            if not 0 <= slot < self.num_embodiments:
                raise ValueError(
                    f"embodiments gives '{tag}' the number {slot}, allowed: 0 to "
                    f"{self.num_embodiments - 1}"
                )


def n17_head(**changes) -> GrootHeadCfg:
    """The head of GR00T N1.7 in its published size (the port in huggingface/lerobot)."""
    given = {
        "version": "n17",
        "dit": DiTCfg(num_layers=32, num_heads=32, head_width=48, dropout=0.2),
        "max_state_dim": 132,
        "max_action_dim": 132,
        "state_dropout": 0.2,
    }
    return GrootHeadCfg(**(given | changes))
