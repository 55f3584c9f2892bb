"""Small policies for recordings of robots: BridgeData V2 (WidowX), GR1, Unitree G1 and SO-101.

Families at laptop size with random weights, which learn in minutes of one core. They show that
recordings of this form train from end to end. A policy for the robot itself starts from published
weights (`openvla-oft-sft`, `groot-n15-sft`, `groot-n17-sft`), with the same
`policy.relative_actions`.
"""

from collections.abc import Iterable

from rrf.algorithms.vla.configs import AugmentationCfg, BehaviorCloningCfg
from rrf.networks.configs import InstructionEncoderCfg
from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.networks.vlm.prismatic.configs import PrismaticCfg
from rrf.networks.vlm.qwen.configs import Qwen3VLCfg
from rrf.networks.vocabulary import vocabulary_of
from rrf.policies.vla.configs import CompactVLACfg
from rrf.policies.vla.heads.groot_configs import GrootHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.compact_vla import pretrain
from rrf.presets.openvla import openvla_oft_laptop
from rrf.presets.qwen import qwen3vl_laptop
from rrf.runners.configs import AdamWCfg, EMACfg, ScheduleCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg

_BRIDGE = (
    "put cup from counter or drying rack into sink",
    "flip pot upright which is in sink",
    "turn lever vertical to front",
    "put carrot on plate",
)
_SO101 = "pick up the red cube"
_GR1 = "pick the pear sweet potato meat salt cupcake from the counter and place it in the plate"
_G1 = "pick up the yellow bottle on the table"
_GR1_ARMS = (*range(7), *range(22, 29))  # the hands' actions have another scale than their state
_G1_ARM = range(7, 14)  # the left arm rests: its actions differ from its joints by an offset


def bridge_sft_laptop() -> SupervisedRunnerCfg:
    """OpenVLA-OFT's shape on 25 episodes of a WidowX arm, whose actions are differences already."""
    policy = openvla_oft_laptop().policy
    assert isinstance(policy, VLMPolicyCfg)
    assert isinstance(policy.backbone, PrismaticCfg)
    # with random_weights="keep_variance" images are learned by heart: an error of 0.90, not 0.78
    backbone = policy.backbone.replace(
        tokenizer=TokenizerCfg(words=vocabulary_of(_BRIDGE)), random_weights="stock"
    )
    policy = policy.replace(backbone=backbone, chunk_length=8, state_normalization="quantile")
    cfg = _sft("bridge", "bridge", _of_dataset(policy))
    # 200 frames are learned by heart: small steps, strong decay and augmentation
    return cfg.replace(
        algorithm=BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=4, state_noise=0.1)),
        optimizer=cfg.optimizer.replace(lr=2e-4, weight_decay=0.1),
        max_steps=400,
    )


def gr1_sft_laptop() -> SupervisedRunnerCfg:
    """GR00T N1.5's head, with its parts for gr1, on 5 episodes of a simulated GR1 humanoid."""
    return _sft("gr1", "gr1", _groot(_GR1, _GR1_ARMS).replace(embodiment="gr1"))


def g1_sft_laptop() -> SupervisedRunnerCfg:
    """GR00T N1.5's head, with those of a new robot, on one episode of a real Unitree G1."""
    return _sft("g1", "g1-segments", _groot(_G1, _G1_ARM))


def so101_sft_laptop() -> SupervisedRunnerCfg:
    """The compact policy on what `rrf record --robot so101-sim` recorded; a real SO-101 differs in
    `dataset` and `policy.image_size` only. It answers with chunks of 8 actions."""
    cfg = pretrain()
    assert isinstance(cfg.policy, CompactVLACfg)
    encoder = InstructionEncoderCfg(vocabulary=vocabulary_of([_SO101]))
    policy = cfg.policy.replace(
        cameras=[],
        image_size=(0, 0),
        state_dim=0,
        action_dim=0,
        chunk_length=8,
        instruction_encoder=encoder,
    )
    return cfg.replace(
        experiment_name="so101-sft-laptop",
        dataset="so101-sim",
        instructions=None,
        policy=policy,
        max_steps=1500,
        batch_size=32,
        validation_interval=250,
    )


def _groot(instruction: str, joints: Iterable[int]) -> VLMPolicyCfg:
    """A small GR00T whose actions of these joints are relative to their positions."""
    policy = qwen3vl_laptop().policy
    assert isinstance(policy, VLMPolicyCfg)
    assert isinstance(policy.backbone, Qwen3VLCfg)
    head = GrootHeadCfg(
        dit=DiTCfg(num_layers=4, num_heads=4, head_width=32),
        hidden_features=128,
        max_state_dim=48,
        max_action_dim=48,
        num_future_tokens=4,
        max_steps=16,
        vl_layers=1,
        vl_heads=4,
        vl_dropout=0.0,
        num_noise_draws=4,
    )
    return policy.replace(
        backbone=policy.backbone.replace(
            final_norm=False, tokenizer=TokenizerCfg(words=vocabulary_of([instruction]))
        ),
        head=head,
        chunk_length=16,
        relative_actions=[(joint, joint) for joint in joints],
    )


def _of_dataset(policy: VLMPolicyCfg) -> VLMPolicyCfg:
    """A copy that takes cameras, image size and dimensions from the dataset."""
    return policy.replace(cameras=[], image_size=(0, 0), state_dim=0, action_dim=0)


def _sft(name: str, dataset: str, policy: VLMPolicyCfg) -> SupervisedRunnerCfg:
    return SupervisedRunnerCfg(
        experiment_name=f"{name}-sft-laptop",
        dataset=dataset,
        policy=policy,
        algorithm=BehaviorCloningCfg(augmentation=AugmentationCfg(shift_px=2, state_noise=0.02)),
        optimizer=AdamWCfg(lr=6e-4, betas=(0.9, 0.95), weight_decay=1e-2),
        schedule=ScheduleCfg(kind="one_cycle"),
        ema=EMACfg(decay=0.99),
        max_steps=200,
        batch_size=32,
        validation_fraction=0.2,
        validation_interval=100,
    )
