"""pi0 and pi0.5 as lerobot writes them: what is honoured gives lerobot's own actions, and what is
not is refused by name."""

import dataclasses
import json
import shlex
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from rrf.cli import app
from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.schema import ACTION, STATE, Observation
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.policies.vla.published import lerobot_pi
from rrf.policies.vla.published.formats import FORMATS
from rrf.presets import pi, resolve
from rrf.runners.checkpoints import checkpoint
from rrf.runners.supervised.runner import build_runner
from rrf.workspace import HOME_VARIABLE
from tests.policies.vla.published import tiny_lerobot_pi as tiny
from tests.runners.supervised.conftest import write_synthetic

BOTH = pytest.mark.parametrize("version", ["pi0", "pi05"])
IMAGES = "observation.images."


def imported(folder, version, tokenizer):
    """Our policy of lerobot's folder, as `rrf models import` makes it."""
    preset = {"pi0": pi.pi0, "pi05": pi.pi05}[version]()
    small = preset.backbone.replace(
        vision=tiny.VISION,
        vocabulary_size=tiny.VOCABULARY,
        tokenizer=TokenizerCfg(files=tokenizer),
        gradient_checkpointing=False,
    )
    layout = FORMATS["lerobot"]
    cfg = layout.fitted(folder, preset.replace(backbone=small), None)
    policy = cfg.build(layout.norm_stats(folder, cfg, None)).eval()
    layout.fill(policy, folder)
    return policy


def seen(policy, instruction="open the door"):
    rng = np.random.default_rng(3)
    size = (2, *policy.cfg.image_size, 3)
    images = {name: rng.integers(0, 256, size, dtype=np.uint8) for name in policy.cfg.cameras}
    state = rng.uniform(-1, 1, (2, policy.cfg.state_dim)).astype(np.float32)
    state[:, -1] = 0.25  # never changes in the statistics
    return Observation(images, state, [instruction] * 2)


def actions_of_lerobot(policy, processors, observation):
    """The chunk that lerobot's policy makes of noise that is zero."""
    before, after = processors
    inputs = {"task": list(observation.instruction), STATE: torch.from_numpy(observation.state)}
    for name, images in observation.images.items():
        inputs[IMAGES + name] = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    config = policy.config
    noise = torch.zeros(len(observation), config.chunk_size, config.max_action_dim)
    return after(policy.predict_action_chunk(before(inputs), noise=noise)).numpy()


SETTINGS = {
    "as it is": {},
    "time": {"num_inference_steps": 3, "min_period": 2e-2, "max_period": 2.0, "chunk_size": 5}
    | {"n_action_steps": 5},
    "relative": {"use_relative_actions": True, "action_feature_names": ["x", "Gripper.pos", "y"]},
    "all relative": {"use_relative_actions": True, "relative_exclude_joints": []},
    "empty cameras": {"empty_cameras": 2},
    "no normalisation": {"normalization_mapping": {"STATE": "IDENTITY", "ACTION": "IDENTITY"}},
    "ranges": {"normalization_mapping": {"STATE": "MIN_MAX", "ACTION": "MIN_MAX"}},
    "large images": {"image_resolution": (56, 56)},
    "large expert": {"action_expert_variant": "gemma_2b"},
}


@BOTH
@pytest.mark.parametrize("case", SETTINGS)
def test_what_is_honoured_gives_lerobots_own_actions(version, case, tmp_path, monkeypatch):
    from lerobot.configs.types import NormalizationMode

    tiny.make_small(monkeypatch, version)
    settings = dict(SETTINGS[case])
    if "normalization_mapping" in settings:
        modes = {"VISUAL": "IDENTITY", **settings["normalization_mapping"]}
        settings["normalization_mapping"] = {k: NormalizationMode(m) for k, m in modes.items()}
    side = settings.get("image_resolution", (tiny.PIXELS,) * 2)
    tokenizer = tiny.write_tokenizer(tmp_path)
    cameras = {"front": side, "wrist": side}
    theirs = tiny.write_policy(version, tmp_path / "a", tokenizer, cameras, **settings)
    policy = imported(tmp_path / "a", version, tokenizer)
    observation = seen(policy)
    expected = actions_of_lerobot(*theirs, observation)
    assert_same(policy.sample(observation, greedy=True).actions, expected)
    if "relative" in case:  # the comparison would see it if they were taken as they are
        stats = FORMATS["lerobot"].norm_stats(tmp_path / "a", policy.cfg, None)
        as_it_is = {STATE: stats[STATE], ACTION: stats[PREDICTED]}
        absolute = policy.cfg.replace(relative_actions=[]).build(as_it_is)
        absolute.load_state_dict(policy.state_dict())
        assert np.abs(absolute.sample(observation, greedy=True).actions - expected).max() > 0.1


def assert_same(actual, expected):
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max())


@BOTH
@pytest.mark.parametrize("instruction", ["open the_door", "  open door \n", "open\nthe door"])
def test_an_instruction_is_cleaned_as_lerobot_does(version, instruction, tmp_path, monkeypatch):
    tiny.make_small(monkeypatch, version)
    tokenizer = tiny.write_tokenizer(tmp_path)
    theirs = tiny.write_policy(version, tmp_path / "a", tokenizer, {"front": (28, 28)})
    policy = imported(tmp_path / "a", version, tokenizer)
    observation = seen(policy, instruction)
    tokens = theirs[1][0]({"task": list(observation.instruction), STATE: torch.zeros(2, 4)})
    width = int(tokens["observation.language.attention_mask"][0].sum())
    normalized = policy.normalize_state.apply(np.zeros((1, 4), np.float32))
    zero = Observation(observation.images, np.zeros((2, 4), np.float32), observation.instruction)
    ids, _ = policy.backbone._encoded(policy.context(zero).view.prompts)
    assert ids[0] == tokens["observation.language.tokens"][0, :width].tolist(), normalized
    expected = actions_of_lerobot(*theirs, observation)
    assert_same(policy.sample(observation, greedy=True).actions, expected)


def test_a_renamed_camera_has_the_robots_name_and_an_empty_one_may_be_filled(tmp_path, monkeypatch):
    tiny.make_small(monkeypatch, "pi0")
    tokenizer = tiny.write_tokenizer(tmp_path)
    names = {"base": (28, 28), "wrist": (28, 28)}
    policy, (before, after) = tiny.write_policy(
        "pi0", tmp_path / "a", tokenizer, names, empty_cameras=2
    )
    renamed = {f"{IMAGES}top": f"{IMAGES}base", f"{IMAGES}side": f"{IMAGES}empty_camera_1"}
    edit(
        tmp_path / "a",
        "policy_preprocessor.json",
        "rename_observations_processor",
        rename_map=renamed,
    )
    before.steps[0].rename_map = renamed
    ours = imported(tmp_path / "a", "pi0", tokenizer)
    assert ours.cfg.cameras == ["top", "wrist", "side"]
    observation = seen(ours)
    expected = actions_of_lerobot(policy, (before, after), observation)
    assert_same(ours.sample(observation, greedy=True).actions, expected)


def edit(folder, file, step=None, **changes):
    """Change settings in a folder of lerobot: of config.json, or of a step of a processor."""
    content = json.loads((folder / file).read_text())
    target = content
    if step is not None:
        target = next(s for s in content["steps"] if s["registry_name"] == step)
        target = target.setdefault("config", {})
    target.update(changes)
    (folder / file).write_text(json.dumps(content))


BEFORE, AFTER = "policy_preprocessor.json", "policy_postprocessor.json"
OTHER_MODES = {"VISUAL": "IDENTITY", "STATE": "MIN_MAX", "ACTION": "MEAN_STD"}
WIDE = {"type": "VISUAL", "shape": [3, 28, 28]}
REFUSED = {
    "an unknown field": (
        ("config.json", None, {"uses_magic": True}),
        "has the setting uses_magic, which is not known here",
    ),
    "several observations": (
        ("config.json", None, {"n_obs_steps": 2}),
        "has n_obs_steps 2, which cannot be had: the policy sees one observation",
    ),
    "memory": (("config.json", None, {"use_visual_memory": True}), "has use_visual_memory True"),
    "adapters": (("config.json", None, {"use_peft": True}), "has use_peft True.*merge"),
    "an unknown size": (
        ("config.json", None, {"action_expert_variant": "gemma_300m_lora"}),
        "has action_expert_variant gemma_300m_lora, allowed: gemma_300m, gemma_2b",
    ),
    "an oblong image": (("config.json", None, {"image_resolution": [28, 56]}), "allowed for Pali"),
    "widths that differ": (
        ("config.json", None, {"max_state_dim": 8}),
        "max_state_dim 8 and max_action_dim 6, allowed: the same",
    ),
    "quantiles of ten": (
        ("config.json", None, {"normalization_mapping": {**OTHER_MODES, "STATE": "QUANTILE10"}}),
        "normalization_mapping STATE: QUANTILE10, allowed: MEAN_STD",
    ),
    "normalised images": (
        ("config.json", None, {"normalization_mapping": {**OTHER_MODES, "VISUAL": "MEAN_STD"}}),
        "normalization_mapping VISUAL: MEAN_STD, allowed: IDENTITY",
    ),
    "another input": (
        ("config.json", None, {"input_features": {"observation.force": {"type": "ENV"}}}),
        "has the inputs and outputs observation.force",
    ),
    "a camera of another name": (
        ("config.json", None, {"input_features": {"pixels": WIDE}}),
        "has the inputs and outputs pixels",
    ),
    "relative in one place": (
        ("config.json", None, {"use_relative_actions": True}),
        "relative_actions_processor has enabled False, but config.json has use_relative_actions T",
    ),
    "relative before": (
        (BEFORE, "relative_actions_processor", {"enabled": True}),
        "relative_actions_processor has enabled True, but config.json has use_relative_actions F",
    ),
    "absolute after": (
        (AFTER, "absolute_actions_processor", {"enabled": True}),
        "absolute_actions_processor has enabled True",
    ),
    "other statistics before": (
        (BEFORE, "normalizer_processor", {"norm_map": OTHER_MODES}),
        "norm_map STATE: MIN_MAX, but config.json has normalization_mapping STATE: MEAN_STD",
    ),
    "other statistics after": (
        (AFTER, "unnormalizer_processor", {"norm_map": {"ACTION": "MIN_MAX"}}),
        "unnormalizer_processor has norm_map .*: .*, but config.json has",
    ),
    "a state that is left out": (
        (BEFORE, "normalizer_processor", {"features": {ACTION: {"type": "ACTION", "shape": [3]}}}),
        "has features without observation.state",
    ),
    "keys of observations": (
        (BEFORE, "normalizer_processor", {"normalize_observation_keys": []}),
        "has normalize_observation_keys",
    ),
    "shorter prompts": (
        (BEFORE, "tokenizer_processor", {"max_length": 12}),
        "has max_length 12, but config.json has tokenizer_max_length 48",
    ),
    "another tokenizer": (
        (BEFORE, "tokenizer_processor", {"tokenizer_name": "gpt2"}),
        "has tokenizer_name gpt2, allowed: that of PaliGemma",
    ),
    "padding on the left": (
        (BEFORE, "tokenizer_processor", {"padding_side": "left"}),
        "has padding_side left",
    ),
    "half numbers": (
        (BEFORE, "device_processor", {"float_dtype": "bfloat16"}),
        "has float_dtype bfloat16",
    ),
    "an unknown setting of a step": (
        (BEFORE, "to_batch_processor", {"axis": 1}),
        "to_batch_processor has the setting axis",
    ),
    "a renamed state": (
        (BEFORE, "rename_observations_processor", {"rename_map": {"joints": STATE}}),
        "has rename_map joints -> observation.state",
    ),
    "a camera renamed away": (
        (BEFORE, "rename_observations_processor", {"rename_map": {f"{IMAGES}front": f"{IMAGES}b"}}),
        "has rename_map observation.images.front -> observation.images.b",
    ),
}


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """A folder of lerobot's pi0, without its weights."""
    folder = tmp_path_factory.mktemp("pi0")
    with pytest.MonkeyPatch.context() as patch:
        tiny.make_small(patch, "pi0")
        tiny.write_policy("pi0", folder / "a", tiny.write_tokenizer(folder), {"front": (28, 28)})
    return folder / "a"


def fitted(folder):
    cfg = pi.pi0()
    small = cfg.backbone.replace(tokenizer=TokenizerCfg())
    return FORMATS["lerobot"].fitted(folder, cfg.replace(backbone=small), None)


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_change_actions_is_refused_by_name(case, untouched, tmp_path):
    (file, step, changes), message = REFUSED[case]
    folder = shutil.copytree(untouched, tmp_path / "a")
    fitted(folder)
    edit(folder, file, step, **changes)
    with pytest.raises(ValueError, match=message):
        fitted(folder)


@pytest.mark.parametrize("step", ["delta_actions_processor", None])
def test_steps_that_are_unknown_or_out_of_order_are_refused(step, untouched, tmp_path):
    folder = shutil.copytree(untouched, tmp_path / "a")
    content = json.loads((folder / BEFORE).read_text())
    steps = [*content["steps"], {"registry_name": step}] if step else content["steps"][::-1]
    (folder / BEFORE).write_text(json.dumps({**content, "steps": steps}))
    message = f"has the step {step}" if step else "has the steps .*, expected"
    with pytest.raises(ValueError, match=message):
        fitted(folder)
    (folder / BEFORE).unlink()
    with pytest.raises(ValueError, match=r"policy_preprocessor\.json is missing, but the other"):
        fitted(folder)


def test_statistics_that_differ_before_and_after_the_policy_are_refused(untouched, tmp_path):
    folder = shutil.copytree(untouched, tmp_path / "a")
    (file,) = folder.glob("policy_postprocessor_step_*.safetensors")
    tensors = load_file(file)
    save_file({**tensors, "action.std": 2 * tensors["action.std"]}, file)
    with pytest.raises(ValueError, match=r"the statistics of action in .* differ"):
        FORMATS["lerobot"].norm_stats(folder, fitted(folder), None)


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_every_field_of_the_installed_lerobot_is_in_a_list(kind):
    """A newer lerobot with a new field fails here, and an import refuses it by name."""
    from lerobot.policies.factory import get_policy_class

    fields = dataclasses.fields(get_policy_class(kind).config_class)
    unknown = [field.name for field in fields if not lerobot_pi.CONFIG.knows(field.name)]
    assert len(fields) > 40
    assert unknown == []


@pytest.mark.parametrize("kind", ["pi0", "pi05"])
def test_every_step_of_the_installed_lerobot_and_its_settings_are_in_a_list(kind, untouched):
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    with tiny.replaced_tokenizer(untouched.parent / "tokenizer"):
        both = make_pre_post_processors(get_policy_class(kind).config_class(device="cpu"))
    for step in [step for processor in both for step in processor.steps]:
        known = lerobot_pi.STEPS[type(step)._registry_name]
        assert [name for name in step.get_config() if not known.knows(name)] == []


def test_fields_of_older_and_newer_lerobots_are_known():
    newer = {"pretrained_revision": "main", "gradient_checkpointing": True, "memory_frames": 6}
    newer |= {"use_visual_memory": False, "rtc_training_max_delay": 3}
    lerobot_pi.CONFIG.check("config.json", newer)


def test_an_old_pi05_does_not_say_whether_its_prompt_is_padded(untouched, tmp_path):
    folder = shutil.copytree(untouched, tmp_path / "a")
    edit(folder, "config.json", type="pi05")
    assert FORMATS["lerobot"].unsaid(folder) == {}
    content = json.loads((folder / "config.json").read_text())
    del content["use_relative_actions"]
    (folder / "config.json").write_text(json.dumps(content))
    assert list(FORMATS["lerobot"].unsaid(folder)) == ["prompt_state_dims"]


@BOTH
def test_relative_actions_are_written_as_lerobot_reads_them(version, tmp_path, monkeypatch):
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    tiny.make_small(monkeypatch, version)
    tokenizer = tiny.write_tokenizer(tmp_path)
    names = {"action_feature_names": ["x", "gripper", "y"], "use_relative_actions": True}
    tiny.write_policy(version, tmp_path / "a", tokenizer, {"front": (28, 28)}, **names)
    policy = imported(tmp_path / "a", version, tokenizer)
    assert policy.cfg.relative_actions == [(0, 0), (2, 2)]
    stats = FORMATS["lerobot"].norm_stats(tmp_path / "a", policy.cfg, None)
    FORMATS["lerobot"].write(policy, stats, tmp_path / "b", None)
    theirs = get_policy_class(version).from_pretrained(tmp_path / "b")
    overrides = {"tokenizer_processor": {"tokenizer_name": tokenizer}}
    processors = make_pre_post_processors(
        theirs.config, pretrained_path=str(tmp_path / "b"), preprocessor_overrides=overrides
    )
    observation = seen(policy)
    expected = actions_of_lerobot(theirs, processors, observation)
    assert_same(policy.sample(observation, greedy=True).actions, expected)
    again = imported(tmp_path / "b", version, tokenizer)
    assert again.cfg.relative_actions == policy.cfg.relative_actions
    with pytest.raises(ValueError, match=r"has relative_actions .* or write the layout of lerobot"):
        FORMATS["openpi"].write(policy, stats, tmp_path / "c", None)


def test_an_imported_policy_acts_as_lerobots_and_is_trained_further_as_what_it_is(
    tmp_path, monkeypatch
):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    tiny.make_small(monkeypatch, "pi0")
    tokenizer = tiny.write_tokenizer(tmp_path)
    settings = {"use_relative_actions": True, "chunk_size": 5, "n_action_steps": 5}
    cameras = {"front": (16, 16)}
    theirs = tiny.write_policy(
        "pi0", tmp_path / "a", tokenizer, cameras, 2, 2, min_period=1e-2, **settings
    )
    sizes = {
        "policy.backbone.vision": tiny.VISION.to_dict(),
        "policy.backbone.gemma": tiny.LANGUAGE.to_dict(),
        "policy.backbone.image.size": [tiny.PIXELS, tiny.PIXELS],
        "policy.backbone.vocabulary_size": tiny.VOCABULARY,
        "policy.backbone.tokenizer.files": tokenizer,
        "policy.head.max_dims": 6,
        **{f"policy.head.{n}": getattr(tiny.EXPERT, n) for n in ("width", "mlp_dim", "num_heads")},
    }
    preset, ours = tmp_path / "tiny.yaml", tmp_path / "ours"
    preset.write_text(json.dumps({"preset": "pi0-sft", "overrides": sizes}))
    words = ["models", "import", str(tmp_path / "a"), "--out", str(ours), "--preset", str(preset)]
    output = CliRunner().invoke(app, words, catch_exceptions=False).output
    command = output.partition("train it further: rrf train ")[2]
    assert shlex.split(command)[1:] == [
        f"init_from={ours}",
        "policy.relative_actions=[[0, 0], [1, 1]]",
        "policy.head.min_period=0.01",
        "policy.chunk_length=5",
    ]
    policy = checkpoint.load_policy(ours)
    observation = seen(policy)
    expected = actions_of_lerobot(*theirs, observation)
    # lerobot resizes images without smoothing, which enlarging them does not need
    actual = policy.sample(observation, greedy=True).actions
    np.testing.assert_allclose(actual, expected, atol=5e-3 * np.abs(expected).max())
    dataset = write_synthetic(tmp_path / "data", 24)
    words = ["train", str(preset), f"init_from={ours}", f"dataset={dataset}", "device=cpu"]
    words += ["max_steps=1", "batch_size=1", "trackers=[]", "precision=fp32", "pretrained=null"]
    with pytest.raises(ValueError, match=r"mean something else .* in policy\.relative_actions"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    runner = build_runner(
        resolve(str(preset), [*words[2:], *shlex.split(command)[2:]]), tmp_path / "run"
    )
    assert runner.policy.cfg.relative_actions == [(0, 0), (1, 1)]
    own, parents = runner.norm_stats, checkpoint.load_norm_stats(ours)
    assert {key: own[key] for key in parents} == parents
