"""The processor of GR00T N1.7, held against its port in lerobot and against the public formulas."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from rrf.cli import app
from rrf.data.schema import ACTION, STATE, Batch, Observation
from rrf.networks.vlm.configs import ImageRuleCfg
from rrf.networks.vlm.images import fitted
from rrf.policies.vla.published import groot_n17
from rrf.policies.vla.published.formats import FORMATS
from rrf.runners.checkpoints import checkpoint
from tests.golden_files import GOLDEN
from tests.policies.vla.groot_golden import Case
from tests.policies.vla.published.test_groot_published import tiny_policy

TAG = "two_arms"
RNG = np.random.default_rng(0)
STATE_PARTS = {"arm": 3, "grip": 1, "base": 2}
ACTION_PARTS = {"arm": 3, "grip": 1}


def numbers(width: int, rows: int | None = None) -> dict:
    shape = (width,) if rows is None else (rows, width)
    low, spread = RNG.uniform(-2, 0, shape), RNG.uniform(0.5, 3, shape)
    found = {
        "min": low - 0.5, "max": low + spread + 0.5, "q01": low, "q99": low + spread,
        "mean": low + spread / 2, "std": spread / 4,
    }  # fmt: skip
    return {name: values.tolist() for name, values in found.items()}


def settings(**changes) -> dict:
    """`processor_kwargs` as published."""
    part = {"delta_indices": [0], "sin_cos_embedding_keys": None, "mean_std_embedding_keys": None}
    kinds = [
        {"rep": "RELATIVE", "type": "NON_EEF", "format": "DEFAULT", "state_key": None},
        {"rep": "ABSOLUTE", "type": "NON_EEF", "format": "DEFAULT", "state_key": None},
    ]
    modality = {
        "video": {**part, "modality_keys": ["front", "wrist"]},
        "state": {**part, "modality_keys": [*STATE_PARTS], "mean_std_embedding_keys": ["base"]},
        "action": {
            **part, "modality_keys": [*ACTION_PARTS], "delta_indices": [*range(4)],
            "action_configs": kinds,
        },
        "language": {**part, "modality_keys": ["annotation.human.task_description"]},
    }  # fmt: skip
    return {
        "modality_configs": {TAG: modality},
        "image_crop_size": [230, 230], "image_target_size": [256, 256], "use_albumentations": True,
        "random_rotation_angle": 0, "color_jitter_params": None,
        "shortest_image_edge": 256, "crop_fraction": 0.95, "letter_box_transform": False,
        "model_name": "nvidia/Cosmos-Reason2-2B", "model_type": "qwen", "formalize_language": True,
        "max_state_dim": 132, "max_action_dim": 132, "max_action_horizon": 40,
        "use_percentiles": True, "use_mean_std": False, "clip_outliers": True,
        "apply_sincos_state_encoding": False, "use_relative_action": True,
        "exclude_state": False, "state_dropout_prob": 0.2,
        **changes,
    }  # fmt: skip


def statistics() -> dict:
    return {
        "state": {name: numbers(width) for name, width in STATE_PARTS.items()},
        "action": {name: numbers(width) for name, width in ACTION_PARTS.items()},
        "relative_action": {"arm": numbers(3, rows=4)},
    }


def write(folder, stats=None, config=None, **changes):
    folder.mkdir(exist_ok=True)
    processor = {"processor_class": "Gr00tN1d7Processor", "processor_kwargs": settings(**changes)}
    (folder / groot_n17.PROCESSOR).write_text(json.dumps(processor))
    (folder / groot_n17.STATISTICS).write_text(json.dumps({TAG: stats or statistics()}))
    (folder / groot_n17.EMBODIMENTS).write_text(json.dumps({TAG: 3, "new_embodiment": 2}))
    (folder / "config.json").write_text(
        json.dumps({"model_type": "Gr00tN1d7", "action_horizon": 6, **(config or {})})
    )
    return folder


def preset():
    """The golden tiny N1.7, whose widths are far below the published ones."""
    return tiny_policy(Case("n17")).cfg.replace(image_size=(60, 80))


def sizes(cfg) -> dict:
    head = cfg.head
    return {"max_state_dim": head.max_state_dim, "max_action_dim": head.max_action_dim}


def built(folder, **changes):
    cfg = preset()
    write(folder, **{**sizes(cfg), **changes})
    cfg = FORMATS["groot"].fitted(folder, cfg, None)
    words = cfg.backbone.tokenizer.replace(words=["pick", "up", "the", "cup"])
    image = cfg.backbone.image.replace(size=(32, 32))
    cfg = cfg.replace(backbone=cfg.backbone.replace(tokenizer=words, image=image))
    return cfg.build(FORMATS["groot"].norm_stats(folder, cfg, None)), cfg


def pack_step(folder):
    """lerobot's step that normalises, with the files of a folder."""
    processor = pytest.importorskip("lerobot.policies.groot.processor_groot")
    from lerobot.policies.groot.utils import flatten_n1_7_modality_stats

    kwargs = json.loads((folder / groot_n17.PROCESSOR).read_text())["processor_kwargs"]
    raw = json.loads((folder / groot_n17.STATISTICS).read_text())[TAG]
    modality = kwargs["modality_configs"][TAG]
    flat = {
        key: flatten_n1_7_modality_stats(
            embodiment_stats=raw, embodiment_config=modality, modality=kind,
            use_percentiles=kwargs["use_percentiles"], use_relative_action=False,
        )
        for key, kind in ((STATE, "state"), (ACTION, "action"))
    }  # fmt: skip
    pack = processor.GrootN17PackInputsStep(
        stats=flat, normalize_min_max=True, clip_outliers=True, max_state_dim=16,
        max_action_dim=16, action_horizon=4, raw_stats=raw, modality_config=modality,
        use_percentiles=kwargs["use_percentiles"],
    )  # fmt: skip
    decode = processor.GrootN17ActionDecodeStep(
        raw_stats=raw, modality_config=modality, use_percentiles=kwargs["use_percentiles"],
        use_relative_action=kwargs["use_relative_action"], pack_step=pack,
    )  # fmt: skip
    return pack, decode


def seen(state, instruction="Pick up the cup!"):
    rows = len(state)
    images = {n: RNG.integers(0, 256, (rows, 60, 80, 3), np.uint8) for n in ("front", "wrist")}
    return Observation(images, state.astype(np.float32), [instruction] * rows)


def test_states_and_actions_are_those_of_the_port_in_lerobot(tmp_path):
    from lerobot.lerobot_types import TransitionKey

    policy, cfg = built(tmp_path)
    assert (cfg.state_dim, cfg.action_dim, cfg.chunk_length) == (6, 4, 4)
    assert (cfg.cameras, cfg.embodiment) == (["front", "wrist"], TAG)
    assert cfg.head.embodiment_slot(TAG) == 3
    state = RNG.uniform(-4, 4, (5, 6)).astype(np.float32)
    pack, decode = pack_step(tmp_path)
    packed = pack({TransitionKey.OBSERVATION: {STATE: torch.from_numpy(state)}})
    theirs = packed[TransitionKey.OBSERVATION]["state"][:, 0, :6].numpy()
    ours = policy.context(seen(state)).state.numpy()
    assert np.abs(ours[:, :4] - theirs[:, :4]).max() < 1e-6
    assert np.abs(ours[:, :4]).max() == 1.0  # clipped
    base = json.loads((tmp_path / groot_n17.STATISTICS).read_text())[TAG]["state"]["base"]
    by_mean = (state[:, 4:] - base["mean"]) / base["std"]  # which the port leaves out
    assert np.abs(ours[:, 4:] - by_mean).max() < 1e-5
    assert np.abs(by_mean).max() > 1

    predicted = torch.from_numpy(RNG.uniform(-1.5, 1.5, (5, 6, 4)).astype(np.float32))
    theirs = decode({TransitionKey.ACTION: predicted})[TransitionKey.ACTION].numpy()
    ours = policy._executable(predicted, seen(state))
    assert np.abs(ours - theirs).max() < 1e-5
    again = policy._target(ours, seen(state)).numpy()
    assert ours.shape == (5, 4, 4)  # of the six steps that the model predicts for all robots
    assert np.abs(again - predicted[:, :4].numpy().clip(-1, 1)).max() < 1e-4


def test_what_does_not_move_is_nothing_as_state_and_the_same_as_action(tmp_path):
    stats = statistics()
    for part in (stats["state"]["arm"], stats["relative_action"]["arm"]):
        for name in ("min", "max", "q01", "q99"):
            rows = part[name] if isinstance(part[name][0], list) else [part[name]]
            for row in rows:
                row[1] = 0.3
    policy, _ = built(tmp_path, stats=stats)
    state = np.full((1, 6), 0.301, np.float32)
    assert abs(policy.context(seen(state)).state[0, 1]) < 1e-9
    wild = torch.full((1, 6, 4), 0.9)
    arm = policy._executable(wild, seen(state))[0, :, 1]
    assert np.abs(arm - (0.3 + 0.301)).max() < 1e-6  # relative to the state


@pytest.mark.parametrize("size", [(256, 256), (120, 160), (90, 160), (480, 640), (160, 120)])
def test_images_are_those_of_the_port_in_lerobot(size, tmp_path):
    processor = pytest.importorskip("lerobot.policies.groot.processor_groot")
    rule = groot_n17.Processor(write(tmp_path / "n17"), TAG).image_rule(ImageRuleCfg(), size, 32)
    y, x = np.mgrid[0 : size[0], 0 : size[1]]
    picture = np.stack([x * 255 / size[1], y * 255 / size[0], 128 + 100 * np.sin(x / 9)], -1)
    noisy = (picture + RNG.normal(0, 10, picture.shape)).clip(0, 255).astype(np.uint8)
    theirs = processor._transform_n1_7_image_for_vlm_albumentations(
        noisy, image_crop_size=[230, 230], image_target_size=[256, 256], shortest_image_edge=256,
        crop_fraction=0.95,
    )  # fmt: skip
    as_cut = rule.replace(size=theirs.shape[:2])  # before Qwen's own resizing
    ours = fitted(torch.from_numpy(noisy)[None], as_cut)[0].permute(1, 2, 0).numpy()
    off = np.abs(ours.astype(int) - theirs)
    assert off.max() <= 2
    assert off.mean() < 0.3
    height, width = rule.size
    assert min(rule.size) == 256
    assert height % 32 == width % 32 == 0
    assert abs(height - theirs.shape[0]) <= 16 >= abs(width - theirs.shape[1])


def test_instructions_are_formal_and_the_chat_ends_with_them(tmp_path):
    policy, _ = built(tmp_path)
    for text in ("Pick up the cup!", "Don't_stop: 2 x 'Öl', please...", " A\tB "):
        prompt = policy.context(seen(np.zeros((1, 6)), text)).view.prompts[0]
        assert prompt == re.sub(r"[^\w\s]", "", text.lower())
    raw, _ = built(tmp_path, formalize_language=False)
    assert raw.context(seen(np.zeros((1, 6)), "Go!")).view.prompts == ["Go!"]
    assert not policy.cfg.backbone.begins_answer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"apply_sincos_state_encoding": True}, "apply_sincos_state_encoding True, which cannot"),
        ({"letter_box_transform": True}, "letter_box_transform True, which cannot be had"),
        ({"gripper_twist": 3}, "the setting gripper_twist, which is not known here"),
        ({"config": {"state_history_length": 2}}, "state_history_length 2, which cannot be had"),
        ({"max_state_dim": 999}, "max_state_dim 999, but the head has"),
    ],
)
def test_a_setting_that_would_change_actions_unnoticed_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        built(tmp_path, **changes)


def test_a_config_with_every_setting_of_the_released_model_is_read(tmp_path):
    known = pytest.importorskip("lerobot.policies.groot.groot_n1_7").GR00T_N1_7_DEFAULTS
    cfg = preset()
    released = {**known, **sizes(cfg), "select_layer": cfg.backbone.num_layers}
    released |= {"num_inference_timesteps": 7, "use_vl_self_attention": True}
    write(tmp_path, config=released, **sizes(cfg))
    found = FORMATS["groot"].fitted(tmp_path, cfg, None)
    assert (found.head.num_denoise_steps, found.chunk_length, found.predicted_steps) == (7, 4, 40)


def test_poses_relative_to_the_hand_and_past_frames_are_refused(tmp_path):
    kwargs = settings()["modality_configs"][TAG]
    kwargs["action"]["action_configs"][0] |= {"type": "EEF", "format": "XYZ_ROT6D"}
    with pytest.raises(ValueError, match=r"action.arm is a pose relative to the hand, which"):
        built(tmp_path, modality_configs={TAG: kwargs})
    kwargs = settings()["modality_configs"][TAG]
    kwargs["video"]["delta_indices"] = [-15, 0]
    with pytest.raises(ValueError, match=r"video has delta_indices \[-15, 0\], which cannot"):
        built(tmp_path, modality_configs={TAG: kwargs})


def test_an_unknown_robot_and_missing_statistics_are_named(tmp_path):
    write(tmp_path)
    with pytest.raises(ValueError, match=r"no statistics of 'gr1', known: two_arms"):
        FORMATS["groot"].fitted(tmp_path, preset(), "gr1")
    (tmp_path / groot_n17.STATISTICS).unlink()
    with pytest.raises(ValueError, match=r"has no statistics: neither .*metadata.json .N1.5. nor"):
        FORMATS["groot"].norm_stats(tmp_path, preset(), None)


def test_a_published_folder_becomes_a_checkpoint_by_one_command(tmp_path):
    case = Case("n17")
    with np.load(GOLDEN / "groot_n17.npz", allow_pickle=False) as data:
        weights = {
            key.removeprefix("weights/"): torch.from_numpy(data[key])
            for key in data.files
            if key.startswith("weights/")
        }
    cfg = preset()
    folder = write(tmp_path / "theirs", config={"action_horizon": cfg.chunk_length}, **sizes(cfg))
    save_file(weights, folder / "model.safetensors")
    given = cfg.replace(cameras=[], image_size=(0, 0), state_dim=0, action_dim=0)
    words = cfg.backbone.tokenizer.replace(words=["pick", "up", "the", "cup"])
    given = given.replace(backbone=cfg.backbone.replace(tokenizer=words))
    training = tmp_path / "tiny.yaml"
    training.write_text(
        json.dumps({"preset": "groot-n17-sft", "overrides": {"policy": given.to_dict()}})
    )
    arguments = ["models", "import", str(folder), "--preset", str(training), "--out"]
    run = CliRunner().invoke(
        app, [*arguments, str(tmp_path / "ours"), "policy.image_size=[60, 80]"]
    )
    assert run.exit_code == 0, run.output
    policy = checkpoint.load_policy(tmp_path / "ours")
    assert policy.cfg.backbone.image.fit == "shortest"
    assert policy.cfg.predicted_steps == cfg.chunk_length
    actions = policy.sample(seen(np.zeros((2, 6))), torch.Generator().manual_seed(0)).actions
    assert actions.shape == (2, 4, 4)
    assert torch.equal(policy.head.state_dict()["vlln.bias"], case.weights["vlln.bias"])
    nothing = CliRunner().invoke(app, [*arguments, str(tmp_path / "again")])
    assert "does not say the policy's image_size" in str(nothing.exception) + nothing.output


def test_training_learns_the_executed_steps_alone(tmp_path):
    policy, cfg = built(tmp_path)
    state = RNG.uniform(-1, 1, (3, 6)).astype(np.float32)
    action = RNG.uniform(-1, 1, (3, 4, 4)).astype(np.float32)
    batch = Batch(seen(state), action, np.zeros((3, 4), bool))
    torch.manual_seed(0)
    loss, _ = policy.loss(batch)
    loss.backward()
    assert torch.isfinite(loss)
    assert (cfg.chunk_length, cfg.head_steps, policy.chunk_length) == (4, 6, 4)
    whole = policy.sample(batch.observation, torch.Generator().manual_seed(0))
    assert whole.actions.shape == (3, 4, 4)


def test_a_policy_that_prepares_as_n17_does_is_written_with_its_processor(tmp_path):
    kwargs = settings()["modality_configs"][TAG]
    kwargs["action"]["action_configs"] = None
    kwargs["state"]["mean_std_embedding_keys"] = None
    policy, cfg = built(tmp_path / "theirs", modality_configs={TAG: kwargs})
    backbone = cfg.backbone.replace(system_prompt="")
    policy.cfg = cfg.replace(backbone=backbone)
    stats = FORMATS["groot"].norm_stats(tmp_path / "theirs", cfg, None)
    FORMATS["groot"].write(policy, stats, tmp_path / "ours", None)
    again = FORMATS["groot"].fitted(tmp_path / "ours", policy.cfg, None)
    image = again.backbone.image.replace(size=backbone.image.size)
    assert again.replace(backbone=again.backbone.replace(image=image)) == policy.cfg.replace(
        head=policy.cfg.head.replace(embodiments={TAG: 3})
    )
    assert FORMATS["groot"].norm_stats(tmp_path / "ours", again, None) == stats


def test_relative_actions_are_not_written_as_absolute_ones(tmp_path):
    policy, cfg = built(tmp_path / "theirs")
    stats = FORMATS["groot"].norm_stats(tmp_path / "theirs", cfg, None)
    with pytest.raises(ValueError, match=r"relative_actions .* the layout of groot has no place"):
        FORMATS["groot"].write(policy, stats, tmp_path / "ours", None)
