"""lerobot's checkpoint folders: read strictly, and written so that lerobot itself reads them."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rrf.data.schema import ACTION, STATE
from rrf.policies.vla.lerobot.kinds import KINDS
from rrf.policies.vla.published import lerobot
from tests.policies.vla.lerobot.lerobot_cases import (
    NORM_STATS,
    as_lerobot,
    build,
    comparable,
    observation,
    policy_cfg,
)


def written(kind, folder):
    policy = build(policy_cfg(kind)).eval()
    return policy, lerobot.write(policy, folder / "pretrained_model")


def chunk_of_lerobot(kind, folder, cameras, seen):
    """The chunk that lerobot's own policy draws with seed 3, and the processors it loads."""
    from lerobot.policies.factory import get_policy_class, make_pre_post_processors

    policy = get_policy_class(kind).from_pretrained(folder, strict=True)
    before, after = make_pre_post_processors(policy.config, pretrained_path=str(folder))
    torch.manual_seed(3)
    actions = [
        after(policy.select_action(before(as_lerobot(seen, cameras))))
        for _ in range(getattr(policy.config, KINDS[kind].executed or KINDS[kind].predicted))
    ]
    return torch.stack(actions, 1).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_lerobot_reads_what_we_write(kind, zoo, tmp_path):
    policy = zoo.policy(kind)
    folder = lerobot.write(policy, tmp_path / "pretrained_model")
    seen = comparable(kind)
    theirs = chunk_of_lerobot(kind, folder, policy.cfg.cameras, seen)
    torch.manual_seed(3)
    np.testing.assert_allclose(policy.sample(seen).actions, theirs, atol=1e-5)
    names = {file.name for file in folder.iterdir()}
    assert {"config.json", "model.safetensors", "policy_preprocessor.json"} <= names


@pytest.mark.parametrize("kind", KINDS)
def test_we_read_what_lerobot_writes(kind, zoo, tmp_path):
    """The folder is made by lerobot's own code, from its own config and statistics."""
    from lerobot.policies.factory import (
        get_policy_class,
        make_policy_config,
        make_pre_post_processors,
    )

    cameras = ["front"] if kind == "vqbet" else ["front", "wrist"]
    config = make_policy_config(kind, **settings_of_lerobot(kind, zoo, cameras))
    torch.manual_seed(0)
    stats = {
        key: {name: np.array(values, np.float32) for name, values in of_key.items()}
        for key, of_key in NORM_STATS.items()
    }
    grey = {"mean": np.full((3, 1, 1), 0.4), "std": np.full((3, 1, 1), 0.2)}
    stats |= {f"observation.images.{name}": grey for name in cameras}
    folder = tmp_path / "pretrained_model"
    get_policy_class(kind)(config).save_pretrained(folder)
    for processor in make_pre_post_processors(config, dataset_stats=stats):
        processor.save_pretrained(folder)

    policy, norm_stats = lerobot.read(folder)
    assert policy.cfg.chunk_length == 4
    assert norm_stats[ACTION]["std"] == [0.5, 0.75, 1.0]
    assert norm_stats["observation.images.front"]["mean"] == pytest.approx([0.4] * 3)
    seen = comparable(kind)
    theirs = chunk_of_lerobot(kind, folder, cameras, seen)
    torch.manual_seed(3)
    np.testing.assert_allclose(policy.sample(seen).actions, theirs, atol=1e-5)
    # Written and read once more, it is the same policy.
    again, stats_again = lerobot.read(lerobot.write(policy, tmp_path / "again"))
    assert (again.cfg, stats_again) == (policy.cfg, norm_stats)


_DOWNLOADS = ("pretrained_backbone_weights", "use_group_norm", "enable_world_model")
_DOWNLOADS += ("action_mode", "inference_action_mode")


def settings_of_lerobot(kind, zoo, cameras):
    """Eight actions are predicted and four executed; nothing else is ours, but for what would be
    downloaded."""
    from lerobot.configs.types import FeatureType, PolicyFeature

    facts = KINDS[kind]
    lengths = {facts.predicted: 8, facts.executed: 4} if facts.executed else {facts.predicted: 4}
    ours = {name: facts.defaults[name] for name in _DOWNLOADS if name in facts.defaults}
    inputs = {STATE: PolicyFeature(FeatureType.STATE, (4,))}
    for name in cameras:
        inputs[f"observation.images.{name}"] = PolicyFeature(FeatureType.VISUAL, (3, 24, 32))
    return {
        **ours,
        **{n: tuple(v) if isinstance(v, list) else v for n, v in zoo.cfg(kind).options.items()},
        **lengths,
        "device": "cpu",
        "input_features": inputs,
        "output_features": {ACTION: PolicyFeature(FeatureType.ACTION, (3,))},
    }


def test_xvla_is_read_under_its_former_names_too(zoo, tmp_path):
    policy = zoo.policy("xvla")
    folder = lerobot.write(policy, tmp_path / "pretrained_model")
    tensors = load_file(folder / "model.safetensors")
    inner, projection = "model.vlm.language_model.", "model.vlm.multi_modal_projector."
    former = {n.replace(inner, f"{inner}model."): value for n, value in tensors.items()}
    table = former.pop(f"{projection}image_projection.weight")
    former["model.vlm.image_projection"] = table.T.contiguous()
    save_file(former, folder / "model.safetensors")
    again, _ = lerobot.read(folder)
    seen = observation()
    np.testing.assert_allclose(
        again.sample(seen, greedy=True).actions, policy.sample(seen, greedy=True).actions, atol=1e-6
    )


def test_weights_that_are_missing_or_unexpected_are_listed(tmp_path):
    _, folder = written("act", tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.other.weight"] = tensors.pop("model.action_head.weight")
    save_file(tensors, folder / "model.safetensors")
    message = r"model.action_head.weight is missing; model.other.weight is unexpected"
    with pytest.raises(ValueError, match=message):
        lerobot.read(folder)


def edited(folder, name, change):
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))


def renamed(folder, **names):
    """Let the processor rename cameras: the policy's name -> the robot's."""
    keys = {f"observation.images.{own}": f"observation.images.{n}" for n, own in names.items()}

    def change(content):
        content["steps"][0]["config"]["rename_map"] = keys

    edited(folder, "policy_preprocessor.json", change)


@pytest.mark.parametrize("kind", ["act", "smolvla", "multi_task_dit"])
def test_renamed_cameras_have_the_robots_names(kind, zoo, tmp_path):
    folder = lerobot.write(zoo.policy(kind), tmp_path / "pretrained_model")
    seen = comparable(kind)
    expected, _ = lerobot.read(folder)
    renamed(folder, wrist="top")
    policy, _ = lerobot.read(folder)
    assert policy.cfg.cameras == ["front", "top"]
    images = {"front": seen.images["front"], "top": seen.images["wrist"]}
    as_the_robot = dataclasses.replace(seen, images=images)
    np.testing.assert_array_equal(
        policy.sample(as_the_robot, greedy=True).actions, expected.sample(seen, greedy=True).actions
    )
    theirs = chunk_of_lerobot(kind, folder, ["front", "top"], as_the_robot)
    torch.manual_seed(3)
    np.testing.assert_allclose(policy.sample(as_the_robot).actions, theirs, atol=1e-5)


def test_what_would_change_actions_silently_is_refused(zoo, tmp_path):
    _, folder = written("act", tmp_path)
    renamed(folder, other="top")
    with pytest.raises(ValueError, match=r"has rename_map observation.images.top -> .*other, all"):
        lerobot.read(folder)
    renamed(folder)

    def leave_out(content):
        step = next(s for s in content["steps"] if s["registry_name"] == "normalizer_processor")
        del step["config"]["features"][STATE]

    edited(folder, "policy_preprocessor.json", leave_out)
    with pytest.raises(ValueError, match=r"normalizer_processor has features"):
        lerobot.read(folder)
    edited(folder, "policy_preprocessor.json", lambda content: content["steps"].pop(0))
    with pytest.raises(ValueError, match=r"has the steps \['to_batch_processor'"):
        lerobot.read(folder)
    folder = lerobot.write(zoo.policy("wall_x"), tmp_path / "wall")
    renamed(folder, wrist="top")
    with pytest.raises(ValueError, match="wall_x may know cameras by their names"):
        lerobot.read(folder)


def test_another_tokenizer_than_that_of_the_model_is_refused(zoo, tmp_path):
    folder = lerobot.write(zoo.policy("smolvla"), tmp_path / "pretrained_model")

    def other(content):
        step = next(s for s in content["steps"] if s["registry_name"] == "tokenizer_processor")
        step["config"]["tokenizer_name"] = "gpt2"

    edited(folder, "policy_preprocessor.json", other)
    with pytest.raises(ValueError, match=r"tokenizer_processor has tokenizer_name gpt2, but"):
        lerobot.read(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_the_installed_lerobot_is_in_a_list(kind):
    """A newer lerobot with another field that all policies have fails here."""
    from lerobot.policies.factory import get_policy_class

    known = lerobot.settings_of(kind)
    fields = dataclasses.fields(get_policy_class(kind).config_class)
    assert [field.name for field in fields if not known.knows(field.name)] == []


def test_other_statistics_after_the_policy_than_before_it_are_refused(tmp_path):
    _, folder = written("act", tmp_path)
    file = next(folder.glob("policy_postprocessor_step_*.safetensors"))
    tensors = load_file(file)
    save_file({**tensors, "action.std": 2 * tensors["action.std"]}, file)
    with pytest.raises(ValueError, match="the statistics of action in policy_preprocessor and"):
        lerobot.read(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"type": "fastwam"},
            "is of a policy 'fastwam', allowed: act, .* its video autoencoder comes",
        ),
        ({"new_setting": 1}, "has the setting new_setting, .* it comes from another version"),
        ({"temporal_ensemble_coeff": 0.01}, "has temporal_ensemble_coeff 0.01, .* averages chunks"),
        ({"use_peft": True}, "has use_peft True, which cannot be had: adapters"),
        ({"output_features": {}}, "has inputs and outputs .*; allowed: observation.state, action"),
        ({"dim_model": 64}, r"vae_encoder_pos_enc is \[1, 6, 32\], expected \[1, 6, 64\]"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(change, message, tmp_path):
    _, folder = written("act", tmp_path)
    edited(folder, "config.json", lambda content: content.update(change))
    with pytest.raises(ValueError, match=message):
        lerobot.read(folder)


def test_a_folder_of_an_older_lerobot_names_the_command_that_converts_it(tmp_path):
    _, folder = written("act", tmp_path)
    (folder / "policy_preprocessor.json").unlink()
    with pytest.raises(ValueError, match=r"lerobot\.processor\.migrate_policy_normalization"):
        lerobot.read(folder)


def test_nothing_is_written_over(tmp_path):
    policy, folder = written("act", tmp_path)
    with pytest.raises(ValueError, match="is not empty"):
        lerobot.write(policy, folder)
