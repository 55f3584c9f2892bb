"""Who types a name of RLinf is told ours."""

import pytest

from rrf.presets import resolve
from tests.presets.rlinf.keys_page import PAGE, drawn


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("algorithm.adv_type", "is the type of algorithm"),
        ("filter_rewards", "max_groups: groups without both"),
        ("cluster.component_placement.env", r"is ray\.placement here"),
        ("component_placement", r"is ray\.placement here"),
        ("logger_backends", "is trackers here"),
        ("actor.optim.lr", r"is optimizer\.lr here"),
        ("update_epoch", r"is algorithm\.num_epochs here"),
        ("env.train.total_num_envs", r"is env\.num_envs here"),
        ("algorithm.kl_beta", r"a KL penalty is algorithm\.kl_coef here"),
        ("algorithm.bootstrap_type", r"is algorithm\.bootstrap here"),
        ("algorithm.dpo_beta", "has no counterpart: DiffusionNFT"),
    ],
)
def test_a_name_of_rlinf_is_answered_with_ours(path, message):
    with pytest.raises(ValueError, match=f"no config field '{path}'; RLinf's .*{message}"):
        resolve("metaworld-grpo-compact", [f"{path}=1"])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("algorithm.clip_hihg=1", "did you mean 'clip_high'"),
        ("lr=1", r"did you mean 'optimizer\.lr'"),
        ("algorithm.clip_high=-1", "clip_high above 0"),
    ],
)
def test_other_mistakes_are_answered_as_before(word, message):
    with pytest.raises(ValueError, match=message):
        resolve("metaworld-grpo-compact", [word])


def test_a_name_that_rlinf_has_too_is_not_answered_with_a_field_of_another_preset():
    with pytest.raises(ValueError, match=r"no config field 'max_steps'; did .*; all fields: rrf "):
        resolve("pendulum-ppo", ["max_steps=1"])


def test_a_config_of_rlinf_is_no_training_file(tmp_path):
    file = tmp_path / "theirs.yaml"
    file.write_text("runner: {}\nalgorithm: {x: &x 1}\nactor: {y: *x}\n")
    with pytest.raises(ValueError, match=r"is a config of RLinf; .*rrf import-config .* --out"):
        resolve(str(file))


def test_the_page_has_all_names():
    assert drawn(PAGE.read_text()) == PAGE.read_text(), (
        "type: python -m tests.presets.rlinf.keys_page"
    )
