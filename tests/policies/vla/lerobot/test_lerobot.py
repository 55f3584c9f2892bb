"""lerobot's own policies behind our contract, against lerobot's own code."""

import dataclasses
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from rrf.data.schema import ACTION, STATE, Observation
from rrf.policies.vla.configs import PolicyCfg
from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg
from rrf.policies.vla.lerobot.kinds import KINDS, REFUSED
from tests.policies.vla.conftest import train_policy
from tests.policies.vla.lerobot import lerobot_table
from tests.policies.vla.lerobot.lerobot_cases import (
    CHUNK,
    NORM_STATS,
    as_lerobot,
    batch,
    build,
    comparable,
    observation,
    policy_cfg,
)


def test_every_kind_that_lerobot_has_is_taken_or_refused_with_a_reason():
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies import factory  # registers them

    assert factory.get_policy_class("act").name == "act"
    known = set(PreTrainedConfig.get_known_choices())
    assert known == set(KINDS) | set(REFUSED)
    assert not set(KINDS) & set(REFUSED)
    for kind in REFUSED:
        with pytest.raises(ValueError, match=re.escape(REFUSED[kind])):
            LerobotPolicyCfg(kind=kind)


def test_the_table_on_the_page_is_drawn_from_the_code():
    drawn = lerobot_table.table()
    assert lerobot_table.written() == drawn, (
        "run: python -m tests.policies.vla.lerobot.lerobot_table"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_only_some_read_the_instruction(kind, zoo):
    policy, seen = zoo.policy(kind), observation(2)
    told = Observation(seen.images, seen.state, ["a red square"] * 2)
    one, other = (policy.sample(each, greedy=True).actions for each in (seen, told))
    assert (one != other).any() == KINDS[kind].reads_instruction


def test_options_are_checked_before_lerobot_is_imported():
    code = (
        "import sys\n"
        "from rrf.policies.vla.lerobot.configs import LerobotPolicyCfg\n"
        "try:\n    LerobotPolicyCfg(kind='act', options={'dim_modl': 64})\n"
        "except ValueError as error:\n    print(error)\n"
        "print(sorted({'torch', 'lerobot'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'dim_modl', which lerobot's config of act does not have; did you mean" in found.stdout
    assert "'dim_model'" in found.stdout
    assert found.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "pi05"}, "use the preset pi05-sft"),
        ({"kind": "difusion"}, "did you mean 'diffusion'"),
        ({"options": {"optimizer_lr": 1e-4}}, "the run's optimizer and schedule have it"),
        ({"options": {"n_action_steps": 2}}, "it is chunk_length"),
        ({"options": {"temporal_ensemble_coeff": 0.01}}, "loop of single actions"),
        ({"options": {"chunk_size": 2}}, r"options.chunk_size is 2, allowed: chunk_length \(8\)"),
        ({"options": {"device": "cuda"}}, "does not have"),
    ],
)
def test_what_is_not_an_option_is_refused_with_what_to_use(given, message):
    with pytest.raises(ValueError, match=message):
        LerobotPolicyCfg(**given)


def test_a_value_that_lerobot_refuses_is_an_error_in_our_words():
    with pytest.raises(
        ValueError, match="lerobot refuses these settings of diffusion: The horizon"
    ):
        build(policy_cfg("diffusion", chunk_length=6))
    with pytest.raises(ValueError, match="lerobot refuses these settings of act: Dilation > 1"):
        build(policy_cfg("act", options={"replace_final_stride_with_dilation": True}))


def test_a_config_survives_yaml(zoo):
    cfg = zoo.cfg("smolvla")
    assert PolicyCfg.from_dict(cfg.to_dict()) == cfg


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_falls(kind, zoo):
    policy = build(zoo.cfg(kind)).train()
    num_steps = 15 if kind == "vqbet" else 8
    losses, metrics = train_policy(policy, batch(), num_steps, lr=1e-3)
    # VQ-BeT learns its codes for three steps, then to predict them, a loss on another scale.
    start = 3 if kind == "vqbet" else 0
    assert losses[-1] < 0.9 * losses[start]
    assert all(isinstance(value, float) for value in metrics.values())


LEARN_FROM_PADDING = ("diffusion", "multi_task_dit", "eo1", "vqbet", "xvla", "wall_x")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_padded_teaches_only_those_that_say_so(kind, zoo):
    policy, data = zoo.policy(kind), batch(2)
    data.is_pad[:] = False
    data.is_pad[:, 2:] = True
    moved = np.where(data.is_pad[..., None], np.float32(9), data.action)
    losses = []
    for action in (data.action, moved):
        torch.manual_seed(0)
        losses.append(policy.loss(dataclasses.replace(data, action=action))[0].item())
    # VLA-JEPA's other steps see a little of the padded ones, as noise to denoise
    changed = abs(losses[1] / losses[0] - 1)
    assert changed > 4e-3 if kind in LEARN_FROM_PADDING else changed < 2e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_is_what_lerobots_own_loop_executes(kind, zoo):
    policy, seen = zoo.policy(kind), comparable(kind)
    theirs = policy.policy
    torch.manual_seed(3)
    chunk = policy.sample(seen).actions
    assert chunk.shape == (len(seen), CHUNK, 3)
    torch.manual_seed(3)
    theirs.reset()
    executed = []
    for _ in range(CHUNK):  # `select_action` predicts once and then empties its queue
        inputs = policy.before(as_lerobot(seen, policy.cfg.cameras))
        executed.append(policy.after(theirs.select_action(inputs)))
    np.testing.assert_allclose(chunk, torch.stack(executed, 1).numpy(), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_depends_on_its_generator_alone(kind, zoo):
    def chunks(seen, seeds):
        generators = [torch.Generator().manual_seed(seed) for seed in seeds]
        return zoo.policy(kind).sample(seen, generators).actions

    seen = observation()
    both = chunks(seen, [5, 6, 7])
    one = Observation(
        {n: v[1:2] for n, v in seen.images.items()}, seen.state[1:2], ["close drawer"]
    )
    scale = np.abs(both).max()
    np.testing.assert_allclose(chunks(one, [6]), both[1:2], atol=2e-6 * scale)
    is_random = kind != "act"
    assert (np.abs(chunks(one, [8]) - both[1:2]).max() > 1e-3 * scale) == is_random
    greedy = [zoo.policy(kind).sample(seen, greedy=True).actions for _ in range(2)]
    np.testing.assert_array_equal(*greedy)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "vqbet"])
def test_nothing_is_kept_of_weights_that_change(kind, zoo):
    policy = build(zoo.cfg(kind)).eval()
    policy.sample(observation(1), greedy=True)
    policy.load_state_dict(zoo.policy(kind).state_dict())
    changed, expected = (p.sample(observation(1), greedy=True) for p in (policy, zoo.policy(kind)))
    np.testing.assert_array_equal(changed.actions, expected.actions)


def test_sampling_leaves_a_training_policy_in_training():
    policy = build(policy_cfg("act")).train()
    policy.sample(observation())
    assert policy.training
    assert policy.policy.model.training


def test_there_is_no_density(zoo):
    assert zoo.policy("act").sample(observation()).log_prob is None
    with pytest.raises(NotImplementedError, match="use a policy with a head that has one"):
        zoo.policy("act").evaluate(observation(), {})


def test_images_are_normalised_as_imagenets_and_vectors_by_our_statistics(zoo):
    seen = observation(1)
    seen.images["front"][:] = 255
    seen.state[:] = [[-2.0, 3.0, 0.25, 1.0]]
    policy = zoo.policy("act")
    found = policy.before(policy.inputs(seen))
    pixel = found["observation.images.front"][0, :, 5, 7]
    torch.testing.assert_close(pixel, torch.tensor([2.2489083, 2.4285715, 2.6400001]))
    # (value - mean) / std with means 0, 0.125, 0.25, 0.375 and deviations 0.5, 0.75, 1, 1.25
    torch.testing.assert_close(found[STATE], torch.tensor([[-4.0, 3.8333333, 0.0, 0.5]]))
    policy = zoo.policy("diffusion")
    # minima -2, -3, -4, -5 and maxima 2, 3, 4, 5
    found = policy.before(policy.inputs(seen))
    torch.testing.assert_close(found[STATE], torch.tensor([[-1.0, 1.0, 0.0625, 0.2]]))
    # minima -1, -2, -3 and maxima 2, 3, 4
    torch.testing.assert_close(policy.after(torch.zeros(1, 3)), torch.tensor([[0.5, 0.5, 0.5]]))


def test_in_evaluation_acts_loss_is_the_error_of_what_it_would_do(zoo):
    policy, data = zoo.policy("act"), batch()
    loss, metrics = policy.loss(data)
    chunk = policy.sample(data.observation).actions
    std = np.array(NORM_STATS[ACTION]["std"])
    error = (np.abs(chunk - data.action) / std)[~data.is_pad].mean()
    assert loss.item() == pytest.approx(error, rel=1e-5)
    assert metrics == {"loss/l1": pytest.approx(error, rel=1e-5)}
    assert policy.policy.config.use_vae


def test_validation_does_not_teach_vqbet_its_codes():
    policy = build(policy_cfg("vqbet")).train()
    policy.loss(batch())
    state = {name: value.clone() for name, value in policy.state_dict().items()}
    policy.eval()
    for seed in range(4):  # the codes are complete after three steps of training
        policy.loss(batch(seed=seed))
    after = policy.state_dict()
    assert [name for name in state if not torch.equal(state[name], after[name])] == []


def test_several_past_observations_can_act_but_not_learn():
    policy = build(policy_cfg("diffusion", options={"n_obs_steps": 2, "horizon": 8})).eval()
    seen = observation()
    torch.manual_seed(3)
    chunk = policy.sample(seen).actions
    torch.manual_seed(3)
    policy.policy.reset()  # as at the beginning of an episode, where lerobot repeats what it sees
    inputs = policy.before(as_lerobot(seen, policy.cfg.cameras))
    first = policy.after(policy.policy.select_action(inputs))
    np.testing.assert_allclose(chunk[:, 0], first.numpy(), atol=1e-6)
    with pytest.raises(ValueError, match=r"set options.n_obs_steps=1"):
        policy.loss(batch())


def test_training_needs_as_many_actions_as_are_predicted():
    policy = build(policy_cfg("act", options={"chunk_size": 6}))
    assert policy.sample(observation()).actions.shape == (3, CHUNK, 3)
    with pytest.raises(ValueError, match=r"set chunk_length=6, or leave options\.chunk_size out"):
        policy.loss(batch())


def test_a_model_of_the_hub_must_be_fetched_first():
    wanted = {"vlm_model_name": "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"}
    with pytest.raises(ValueError, match=r"fetch the model \(hf download HuggingFaceTB/SmolVLM2"):
        build(policy_cfg("smolvla", wanted))
    with pytest.raises(
        ValueError, match=r"options\.tokenizer_name is 'facebook/bart-large', which"
    ):
        build(policy_cfg("xvla"))


def test_observations_unlike_the_training_data_are_refused(zoo):
    seen = observation()
    seen.images["wrist"] = seen.images["wrist"][:, :16]
    with pytest.raises(ValueError, match=r"observation.images.wrist is uint8\[3, 16, 32, 3\]"):
        zoo.policy("act").sample(seen)
