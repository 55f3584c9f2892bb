"""Every published family by every algorithm: each of these presets trains at laptop size."""

from pathlib import Path

import pytest
import torch

from rrf.config import trust
from rrf.evaluation.protocols.files import load_protocol
from rrf.orchestra import inline
from rrf.orchestra.inline_run import check_fit
from rrf.presets import PRESETS, resolve
from rrf.presets.rlinf.recipes import (
    ALGORITHMS,
    ENVIRONMENTS,
    MODELS,
    RECIPES,
    aliases,
    further,
    names,
)
from rrf.presets.vla_pairs import recipe_of
from rrf.runners.checkpoints import checkpoint
from rrf.runners.vla_rl.configs import VLARLRunnerCfg
from tests.presets.laptop_pairs import InThisProcess, parent_of, small, toy

ROOT = Path(__file__).parents[2]
TASKS = ("reach-red", "reach-blue")
QUICK = [
    f"libero10-{ALGORITHMS[number % len(ALGORITHMS)]}-{model}"
    for number, model in enumerate(MODELS)
]
"""Each model, by the algorithms in turn."""
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in names() if name not in QUICK]


def trained(name, env, tasks, folder):
    """The weights of a policy before and after a round of the preset."""
    trust("tests")
    cfg = small(name, env, tasks)
    parent = parent_of(name, getattr(cfg.policy, "base", None) or cfg.policy, folder / "parent")
    runner = cfg.replace(init_from=str(parent)).build(folder / "run")
    before = {key: value.clone() for key, value in runner.actor.weights().items()}
    runner.run()
    return before, runner.actor.weights()


@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_a_preset_learns_at_laptop_size(name, tmp_path, monkeypatch):
    monkeypatch.setattr(inline, "LocalProcesses", InThisProcess)
    chunk_length = 1 if name.endswith("-openvla") else 2
    before, after = trained(name, toy(chunk_length), TASKS, tmp_path)
    changed = [key for key in before if not torch.equal(before[key], after[key])]
    learned = ("actor.",) if "-sac-" in name else ("head.", "backbone.")
    assert [key for key in changed if key.startswith(learned)], changed


def test_every_preset_fits_its_simulator_and_survives_yaml():
    assert len(names()) == len(ENVIRONMENTS) * len(ALGORITHMS) * len(MODELS) == 210
    for name in names():
        cfg = resolve(name)
        assert cfg.experiment_name == name
        assert type(cfg).from_dict(cfg.to_dict()) == cfg
        if name.startswith("libero10-"):
            assert type(cfg).from_yaml(cfg.to_yaml()) == cfg
        check_fit(cfg)
        assert cfg.env.max_episode_steps % cfg.env.chunk_length == 0
        assert cfg.env.num_envs % cfg.num_workers == 0
        if isinstance(cfg, VLARLRunnerCfg):
            assert (cfg.policy.value_head is not None) == ("-ppo-" in name)


def test_a_preset_that_rlinf_has_gets_its_numbers():
    own = {name: preset for name, preset in aliases().items() if name in RECIPES}
    assert len(own) == 40  # of LIBERO, ManiSkill, Isaac Lab and RoboTwin
    for name, preset in own.items():
        model = max((m for m in MODELS if preset.endswith(f"-{m}")), key=len)
        env, algorithm = preset.removesuffix(f"-{model}").rsplit("-", 1)
        assert recipe_of(env, algorithm, model) == RECIPES[name]
        cfg, recipe = resolve(name), RECIPES[name]
        episodes = cfg.num_groups * cfg.algorithm.group_size
        assert (episodes, cfg.env.num_envs) == (recipe.episodes, recipe.envs)
        assert (cfg.optimizer.lr, cfg.algorithm.minibatch_size) == (recipe.lr, recipe.batch)


@pytest.mark.parametrize(
    ("pair", "numbers"),
    [  # learning rate, rows per step, passes, horizon, actions per observation
        ("libero10-ppo-openvla-oft-tokens", (2e-5, 16384, 1, 512, 8)),  # RLinf's by GRPO
        ("libero10-grpo-openvla-oft", (2e-5, 16384, 1, 512, 8)),  # with tokens
        ("libero10-grpo-openvla", (2e-5, 16384, 1, 512, 1)),  # with tokens of a chunk
        ("libero-goal-grpo-groot", (5e-6, 2048, 1, 320, 5)),  # pi0.5
        ("libero10-ppo-groot-n17", (5e-6, 32, 1, 512, 16)),  # LIBERO-Spatial
        ("maniskill-grpo-pi0", (7.91e-6, 5120, 4, 80, 5)),  # by PPO
        ("robotwin-grpo-groot", (5e-6, 2048, 5, 200, 50)),  # pi0.5 by PPO
    ],
)
def test_a_pair_that_rlinf_lacks_takes_the_most_similar_numbers(pair, numbers):
    cfg = resolve(pair)
    found = (cfg.optimizer.lr, cfg.algorithm.minibatch_size, cfg.algorithm.num_epochs)
    assert (*found, cfg.env.max_episode_steps, cfg.env.chunk_length) == numbers


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("maniskill_ppo_openvla", "maniskill-ppo-openvla"),
        ("maniskill_ppo_openvlaoft", "maniskill-ppo-openvla-oft-tokens"),
        ("maniskill_grpo_openvla", "maniskill-grpo-openvla"),
        ("maniskill_grpo_openvlaoft", "maniskill-grpo-openvla-oft-tokens"),
        ("libero_10_ppo_openvlaoft", "libero10-ppo-openvla-oft-tokens"),
        ("libero_10_grpo_openvlaoft", "libero10-grpo-openvla-oft-tokens"),
        ("libero_spatial_ppo_gr00t", "libero-spatial-ppo-groot"),
        ("libero_10_ppo_openpi_pi05", "libero10-ppo-pi05"),
        ("libero10-actor-critic-pi05", "libero10-ppo-pi05"),
        ("isaaclab_ppo_gr00t_assemble_trocar", "isaaclab-trocar-ppo-groot"),
        ("isaaclab_franka_stack_cube_ppo_openpi_pi05", "isaaclab-stack-cube-ppo-pi05"),
        ("robotwin_place_empty_cup_grpo_openvlaoft", "robotwin-grpo-openvla-oft-tokens"),
        ("robotwin_adjust_bottle_ppo_OpenPI", "robotwin-ppo-pi0"),
        ("robotwin_adjust_bottle_ppo_openpi_pi05", "robotwin-ppo-pi05"),
    ],
)
def test_names_of_rlinf_are_other_names_of_ours(name, preset):
    assert PRESETS.get(name)().experiment_name == preset
    assert resolve(name, ["max_rounds=3"]) == resolve(preset, ["max_rounds=3"])


def test_tokens_are_drawn_as_rlinf_draws_them():
    libero, maniskill = (
        resolve(name).policy for name in ("libero_10_grpo_openvlaoft", "maniskill_ppo_openvlaoft")
    )
    assert (libero.head.temperature, maniskill.head.temperature) == (1.6, 1.0)
    assert libero.cameras == ["agentview"]
    assert not libero.head.uses_state
    assert maniskill.value_head.mlp.hidden_features == [512, 128]


def test_the_noise_network_of_rlinf_is_new_when_training_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(inline, "LocalProcesses", InThisProcess)
    before, _ = trained("maniskill-ppo-pi0", toy(2), TASKS, tmp_path)
    parent = checkpoint.read_weights(checkpoint.find(tmp_path / "parent"))
    assert {key for key in before if key not in parent and key.startswith("head.")} == {
        key for key in before if key.startswith("head.explore_noise.")
    }


def test_rlinfs_further_tasks_of_robotwin_are_presets_by_their_own_names():
    assert len(further()) == 6
    for name in further():
        cfg, recipe = resolve(name), RECIPES[name]
        assert cfg.tasks == [name.removeprefix("robotwin_").removesuffix("_grpo_openvlaoft")]
        assert (cfg.experiment_name, cfg.env.max_episode_steps) == (name, recipe.horizon)
        assert (cfg.optimizer.lr, cfg.policy.head.temperature) == (2e-4, 1.6)
        check_fit(cfg)


def test_robotwin_has_the_tasks_robots_and_chunks_of_rlinf():
    tokens, pi = resolve("robotwin-grpo-openvla-oft-tokens"), resolve("robotwin-ppo-pi05")
    assert (tokens.tasks, pi.tasks) == (["place_empty_cup"], ["adjust_bottle"])
    assert (tokens.env.robot, tokens.env.apart_m, tokens.env.scene) == ("piper", 0.6, "randomized")
    assert (pi.env.robot, pi.env.apart_m, pi.env.scene) == ("aloha-agilex", None, "clean")
    assert (tokens.env.cameras, len(pi.env.cameras)) == (["head_camera"], 3)
    assert (tokens.policy.chunk_length, pi.policy.chunk_length) == (25, 50)
    assert tokens.policy.head.uses_state
    assert tokens.env.moves == pi.env.moves == "whole chunk"


def test_one_task_may_be_named_instead_of_a_list():
    assert resolve("robotwin-grpo-pi0", ["task=stack_blocks_two"]).tasks == ["stack_blocks_two"]


def test_rlinfs_config_of_an_evaluation_is_refused_with_what_to_type():
    with pytest.raises(ValueError, match=r"of an evaluation; type: rrf eval CHECKPOINT --protocol"):
        resolve("robotwin_adjust_bottle_ppo_OpenPI_pi05_eval")


def test_isaac_lab_is_mapped_as_its_own_config_says():
    cfg = resolve("isaaclab_ppo_gr00t_assemble_trocar").env
    assert cfg.cameras == ["front_camera", "left_wrist_camera", "right_wrist_camera"]
    assert [(term.key, term.slice) for term in cfg.states] == [
        ("robot_joint_state", [15, 29]),
        ("robot_dex3_joint_state", [0, 14]),
    ]
    assert (cfg.action_mapping.prefix_pad, cfg.action_dim, cfg.state_dim) == (15, 28, 28)


@pytest.mark.parametrize("suite", ["10", "90", "spatial", "object", "goal"])
def test_a_preset_fits_the_protocol_of_its_suite(suite):
    protocol = load_protocol(ROOT / f"configs/protocols/libero-{suite}.yaml")
    start = f"libero{suite}-" if suite.isdecimal() else f"libero-{suite}-"
    found = [resolve(name) for name in names() if name.startswith(start) and "-sac-" not in name]
    found = [cfg for cfg in found if cfg.policy.chunk_length >= protocol.execute_steps]
    assert len(found) == 12  # OpenVLA predicts one action, and the protocol executes five
    for cfg in found:
        protocol.build().check_training(cfg)
        assert cfg.env.initial_states == "drawn"  # the recorded ones are left for the evaluation
