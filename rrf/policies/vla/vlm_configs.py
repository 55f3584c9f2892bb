"""The config of policies that join any backbone with any head that can read it. No torch here."""

import typing
from pathlib import Path

from rrf.config import configclass, require_not_negative
from rrf.data.dataset.action_representation import Representation
from rrf.data.dataset.history import Past
from rrf.data.dataset.transforms import Mode, ModeOfDimension
from rrf.data.schema import Schema
from rrf.networks.configs import MLPCfg, plain_mlp
from rrf.networks.vlm.configs import ABILITIES, BackboneCfg
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.configs import ActionHeadCfg, PolicyCfg, RegressionHeadCfg, ValueHeadCfg
from rrf.policies.vla.robot_configs import RobotCfg

_OF_ONE_ROBOT = (
    *("relative_actions", "delta_actions", "state_modes", "action_modes"),
    *("past_images", "past_states"),
)


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
    predicted_steps: int = 0
    """Steps that the head predicts, if more than `chunk_length`: those after it are trained for
    other robots and mean nothing. 0: `chunk_length`."""
    embodiment: str | None = None
    """Tag of the robot, for a head with encoders of its own for each, e.g. gr1. null: a new
    robot."""
    robots: dict[str, RobotCfg] = {}
    """Robots that the weights are for, by embodiment tag: those of a mixture of datasets. With
    `embodiment`, this is the policy of one of them; without, it is in training on all. Empty: one
    robot."""
    prompt: str = "{instruction}"
    """The prompt. {instruction} stands for the instruction; {state}, if there, for the normalised
    state in 256 bins, as in pi0.5; {advantage}, if there, for "Advantage: positive" or negative, as
    in pi*0.6."""
    prompt_state_dims: int = 0
    """Dimensions to which the state in the prompt is padded with zeros: 32 in the pi0.5 of lerobot
    before 0.5. 0 for no padding, as in openpi and in lerobot since then."""
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
    clips_state: bool = False
    """Clip the normalised state to [-1, 1], except where mean and std normalise it."""
    clips_actions: bool = False
    """Clip normalised actions in the same way: those to learn from, and those predicted."""
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
    def head_steps(self) -> int:
        """Steps that the head predicts."""
        return self.predicted_steps or self.chunk_length

    @property
    def representation(self) -> Representation:
        """How actions are expressed."""
        return Representation(tuple(self.relative_actions), tuple(self.delta_actions))

    @property
    def reads_advantage(self) -> bool:
        return "{advantage}" in self.prompt

    @property
    def is_shared(self) -> bool:
        """Whether it is in training on several robots, and acts as none of them."""
        return bool(self.robots) and self.embodiment is None

    @property
    def slots(self) -> list[str | None]:
        """The camera of each image that the backbone sees; None where this robot has none."""
        if not self.robots or self.is_shared:
            return [*self.past.views(self.cameras)]
        return self.shown_by(self.embodiment or "")

    @property
    def state_width(self) -> int:
        """Dimensions of the state that the networks read: the most of all robots."""
        return max([self.seen_state_dim, *(robot.state_dim for robot in self.robots.values())])

    @property
    def action_width(self) -> int:
        """Dimensions of the action that the head predicts: the most of all robots."""
        return max([self.action_dim, *(robot.action_dim for robot in self.robots.values())])

    def shown_by(self, tag: str) -> list[str | None]:
        """The camera of robot `tag` for each image that the backbone sees."""
        most = max(len(robot.cameras) for robot in self.robots.values())
        cameras = self.robots[tag].cameras
        return [*cameras, *[None] * (most - len(cameras))]

    def embodiment_slot(self, tag: str | None) -> int:
        """The number of a robot in the head; 0 in heads that share all parts among robots.

        Raises:
            ValueError: If the head does not know the tag.
        """
        if self.robots and not self.head.has_embodiments:
            return 0
        return self.head.embodiment_slot(tag)

    def fitted(self, schema: Schema) -> typing.Self:
        if self.embodiment not in self.robots:
            return super().fitted(schema)
        robot = self.robots[self.embodiment].fitted(self.embodiment, schema)
        return self.replace(robots={**self.robots, self.embodiment: robot}).of_robot(
            self.embodiment
        )

    def fitted_to_robots(self, schemas: typing.Mapping[str, Schema]) -> typing.Self:
        """A copy that trains on several robots, each with a dataset that fills in what is not
        given.

        Raises:
            ValueError: If a robot's config differs from its dataset.
        """
        fitted = {tag: RobotCfg() for tag in schemas} | self.robots
        fitted |= {tag: fitted[tag].fitted(tag, schema) for tag, schema in schemas.items()}
        policy = self.replace(robots=fitted)
        most = max(fitted.values(), key=lambda robot: len(robot.cameras))
        return policy.replace(
            cameras=[camera or f"camera{at}" for at, camera in enumerate(most.cameras)],
            image_size=self.backbone.image.size,
            state_dim=policy.state_width,
            action_dim=policy.action_width,
        )

    def fitted_to(self, other: PolicyCfg) -> typing.Self:
        if isinstance(other, VLMPolicyCfg) and other.robots:
            other.require_one_robot()
            with_robots = self.replace(robots=other.robots, embodiment=other.embodiment)
            return super(VLMPolicyCfg, with_robots).fitted_to(other)
        return super().fitted_to(other)

    def of_robot(self, tag: str) -> typing.Self:
        """The config of the same policy as that of one of its robots, in that robot's dimensions.

        Raises:
            ValueError: For a robot that it does not know.
        """
        if tag not in self.robots:
            raise ValueError(
                f"the policy knows no robot '{tag}', known: {', '.join(self.robots) or 'none'}"
            )
        robot = self.robots[tag]
        return self.replace(
            embodiment=tag,
            cameras=robot.own_cameras,
            image_size=robot.image_size,
            state_dim=robot.state_dim,
            action_dim=robot.action_dim,
        )

    def require_one_robot(self) -> None:
        if self.is_shared:
            raise ValueError(
                f"the policy was trained on several robots ({', '.join(self.robots)}) and acts as "
                "none of them; make the policy of one: rrf models extract CHECKPOINT --embodiment "
                "TAG --out DIRECTORY"
            )

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
        require_not_negative(self, "prompt_state_dims")
        if self.predicted_steps and self.predicted_steps < self.chunk_length:
            raise ValueError(
                f"predicted_steps is {self.predicted_steps}, allowed: 0, or at least chunk_length, "
                f"{self.chunk_length}"
            )
        self._check_robots()
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
                "policy.backbone.tokenizer.words, and 3 to the backbone's vocabulary_size"
            )

    def _check_robots(self) -> None:
        for tag in [*self.robots] or [self.embodiment]:
            self.embodiment_slot(tag)
        if not self.robots:
            return
        if self.embodiment is not None and self.embodiment not in self.robots:
            raise ValueError(
                f"embodiment is '{self.embodiment}', but policy.robots has only: "
                f"{', '.join(self.robots)}"
            )
        if not self.head.takes_robots:
            raise ValueError(
                f"{type(self.head).__name__} cannot leave out the dimensions that a robot lacks, "
                "so it cannot be trained on several robots; choose another head, e.g. GrootHeadCfg"
            )
        given = [name for name in _OF_ONE_ROBOT if getattr(self, name)]
        if given:
            raise ValueError(
                f"{', '.join(given)} are for the policy of one robot, but policy.robots has "
                f"{len(self.robots)}; leave them out"
            )
