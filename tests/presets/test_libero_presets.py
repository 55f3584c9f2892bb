"""The presets for LIBERO: what each of them trains fits its simulator and the suite's protocol."""

import re
from pathlib import Path

import pytest

from rrf.envs.libero.configs import LiberoCfg
from rrf.envs.libero.tasks import SUITES
from rrf.evaluation.protocols.files import load_protocol
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.orchestra.inline_run import build_runner, check_fit
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.runners.vla_rl.configs import VLARLRunnerCfg

ROOT = Path(__file__).parents[2]
PRESETS = {
    "libero10-grpo-openvla-oft": "libero-10",
    "libero10-ppo-pi05": "libero-10",
    "libero-spatial-ppo-groot": "libero-spatial",
}
BOTH = pytest.mark.parametrize(("preset", "suite"), PRESETS.items())


def run(preset: str) -> VLARLRunnerCfg:
    cfg = resolve(preset)
    assert isinstance(cfg, VLARLRunnerCfg)
    return cfg


def protocol_of(suite: str) -> ProtocolCfg:
    protocol = load_protocol(ROOT / f"configs/protocols/{suite}.yaml")
    assert isinstance(protocol, ProtocolCfg)
    return protocol


@BOTH
def test_a_preset_fits_its_simulator_and_the_protocol_of_its_suite(preset, suite):
    cfg, protocol = run(preset), protocol_of(suite)
    check_fit(cfg)
    protocol.build().check_training(cfg)
    assert (cfg.policy.state_dim, cfg.policy.action_dim) == (8, 7)
    assert cfg.policy.cameras == protocol.cameras == ["agentview", "robot0_eye_in_hand"]
    assert tuple(cfg.tasks) == SUITES[suite]
    assert cfg.env.max_episode_steps % cfg.env.chunk_length == 0
    assert cfg.env.num_envs % cfg.num_workers == 0
    assert isinstance(cfg.env, LiberoCfg)
    assert cfg.env.initial_states == "drawn"  # the recorded ones are left for the evaluation
    assert isinstance(cfg.policy, VLMPolicyCfg)
    assert (cfg.policy.value_head is not None) == ("-ppo-" in preset)


@BOTH
def test_a_preset_needs_a_checkpoint_to_start_from(preset, suite, tmp_path):
    with pytest.raises(ValueError, match=r"init_from is not given, .*init_from=<checkpoint"):
        build_runner(run(preset), tmp_path)


def test_a_protocol_refuses_what_means_something_else():
    cfg, protocol = run("libero10-ppo-pi05"), protocol_of("libero-10")
    assert isinstance(cfg.env, LiberoCfg)
    opened = cfg.replace(env=cfg.env.replace(gripper="one_opens", image_flip="vertical"))
    refusal = (
        "it was trained with env.image_flip=vertical, not both; was trained with "
        "env.gripper=one_opens, not minus_opens"
    )
    with pytest.raises(ValueError, match=re.escape(refusal)):
        protocol.build().check_training(opened)
    narrow = cfg.replace(policy=cfg.policy.replace(action_dim=4, state_dim=9))
    with pytest.raises(ValueError, match="has states of 9 numbers, not of the 8 of LIBERO; has ac"):
        protocol.build().check_training(narrow)
    with pytest.raises(ValueError, match=r"policy.state_dim is 9, but env.state_dim is 8"):
        check_fit(narrow)
    with pytest.raises(ValueError, match="sees no camera 'robot0_eye_in_hand'"):
        protocol.replace(cameras=["agentview"]).build().check_training(cfg)


def test_an_evaluation_refuses_what_was_trained_with_other_conventions():
    cfg, protocol = run("libero10-ppo-pi05"), protocol_of("libero-10")
    config = cfg.to_dict()
    protocol.build()._check_policy(config)
    config["env"]["gripper"] = "one_opens"
    with pytest.raises(ValueError, match=r"fit the policy: it was trained with env.gripper=one_op"):
        protocol.build()._check_policy(config)
    config["policy"]["action_dim"] = 4
    with pytest.raises(ValueError, match="actions of 4 numbers, not of the 7 of LIBERO; was train"):
        protocol.build()._check_policy(config)
