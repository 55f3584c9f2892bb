"""GR00T N1.5 and N1.7 in their published sizes, and one for a laptop.

The published sizes start from the published weights, which `rrf models setup` fetches, and
fine-tune with a frozen backbone, as gr00t's own script does by default. N1.5 sees the middle of
images, as gr00t's data configs cut them. N1.7 sees images, reads instructions and clips as its
published processor does; images that are not square want
`policy.backbone.image.size`, 256 on the shorter side and a multiple of 32 on the other. N1.5 has no
tokenizer.json in its files; give one as `policy.backbone.tokenizer.files=DIR`. Another robot of the
published model: `policy.embodiment=gr1`.
"""

from rrf.algorithms.vla.configs import BehaviorCloningCfg
from rrf.networks.dit_configs import DiTCfg
from rrf.networks.vlm.configs import BackboneCfg, ImageRuleCfg, TokenizerCfg
from rrf.networks.vlm.eagle.configs import N15_IMAGE, EagleCfg
from rrf.networks.vlm.qwen.configs import Qwen3VLCfg
from rrf.policies.vla.heads.groot_configs import GrootHeadCfg, n17_head
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets.compact_vla import pretrain
from rrf.presets.qwen import qwen3vl_laptop
from rrf.runners.configs import AdamWCfg, ScheduleCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg


def groot_n15_sft() -> SupervisedRunnerCfg:
    """GR00T N1.5: Eagle 2.5 and a head of 1.07 billion parameters."""
    # gr00t gives the language model the instruction as Python writes a list of one text
    policy = _policy(EagleCfg(image=N15_IMAGE), GrootHeadCfg(), 16)
    policy = policy.replace(prompt="['{instruction}']")
    policy = policy.replace(state_normalization="min_max")
    return _published("groot-n15-sft", "groot-n1.5-3b", "groot-n1.5-3b", policy)


def groot_n17_sft() -> SupervisedRunnerCfg:
    """GR00T N1.7: the lower 16 layers of Qwen3-VL-2B and a head of 1.62 billion parameters."""
    image = ImageRuleCfg(size=(256, 256), fit="shortest", filter="area", keeps=0.95, cut="pixels")
    backbone = Qwen3VLCfg(
        num_layers=16, final_norm=False, image=image, instructions="formal", begins_answer=False
    )
    policy = _policy(backbone, n17_head(), 40).replace(clips_state=True, clips_actions=True)
    quantiles = policy.replace(state_normalization="quantile", action_normalization="quantile")
    return _published("groot-n17-sft", "groot-n1.7", "qwen3-vl-2b", quantiles)


def groot_laptop() -> SupervisedRunnerCfg:
    """A small GR00T N1.7 with random weights, on Meta-World."""
    qwen = qwen3vl_laptop().policy
    assert isinstance(qwen, VLMPolicyCfg)
    assert isinstance(qwen.backbone, Qwen3VLCfg)
    head = n17_head(
        dit=DiTCfg(num_layers=4, num_heads=4, head_width=32),
        hidden_features=128,
        max_state_dim=16,
        max_action_dim=8,
        num_embodiments=11,
        max_steps=16,
        vl_layers=1,
        vl_heads=4,
        vl_dropout=0.0,
        state_dropout=0.0,
        num_noise_draws=4,
    )
    return pretrain().replace(
        experiment_name="groot-laptop",
        policy=_policy(qwen.backbone.replace(final_norm=False), head, 2),
        optimizer=AdamWCfg(lr=6e-4, betas=(0.9, 0.95), weight_decay=1e-2),
        max_steps=1050,
    )


def groot_laptop_mixture() -> SupervisedRunnerCfg:
    """The small GR00T N1.7 on two robots together: Meta-World's arm and Bridge's WidowX."""
    laptop = groot_laptop()
    policy = laptop.policy
    assert isinstance(policy, VLMPolicyCfg)
    assert isinstance(policy.head, GrootHeadCfg)
    head = policy.head.replace(embodiments={"metaworld": 1, "bridge": 2})
    return laptop.replace(
        experiment_name="groot-laptop-mixture",
        dataset="metaworld-demo",
        mixture={"bridge": 4.0},
        instructions=None,
        robots={"metaworld-demo": "metaworld", "bridge": "bridge"},
        policy=policy.replace(head=head),
        max_steps=400,
    )


def _policy(backbone: BackboneCfg, head: GrootHeadCfg, chunk_length: int) -> VLMPolicyCfg:
    return VLMPolicyCfg(backbone=backbone, head=head, chunk_length=chunk_length)


def _published(name: str, model: str, tokenizer: str, policy: VLMPolicyCfg) -> SupervisedRunnerCfg:
    files = TokenizerCfg(files=tokenizer)
    backbone = policy.backbone.replace(dtype="bf16", tuning="frozen", tokenizer=files)
    return SupervisedRunnerCfg(
        experiment_name=name,
        pretrained=model,
        policy=policy.replace(backbone=backbone),
        algorithm=BehaviorCloningCfg(),
        optimizer=AdamWCfg(lr=1e-4, betas=(0.95, 0.999), weight_decay=1e-5),
        schedule=ScheduleCfg(kind="cosine", warmup_fraction=0.05, final_factor=0.0),
        ema=None,
        max_steps=20_000,
        batch_size=32,
        precision="bf16",
        device="cuda",
        validation_interval=1000,
        save_interval=2000,
    )
