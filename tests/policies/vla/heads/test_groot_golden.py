"""GR00T's heads compute what the original code computed (tests/golden/README.md)."""

import pytest
import torch

from rrf.policies.vla.flow_matching import flow_time, noised, velocity_target
from rrf.policies.vla.heads.groot import training_time
from rrf.policies.vla.real_time import RunningChunk
from tests.closeness import assert_close
from tests.policies.vla.groot_golden import Case


@pytest.fixture(params=["n15", "n17"])
def case(request):
    return Case(request.param)


def velocity(case):
    inputs = case.inputs
    share_b = 1.0 - inputs["time"]
    x_bha = noised(inputs["action"], inputs["noise"], share_b)
    return case.head.velocity(case.head.given(case.context()), x_bha, share_b)[0]


def test_velocity_and_loss_equal_golden_data(case):
    velocity_bha = velocity(case)
    assert_close(velocity_bha, case.outputs["velocity_pred"])
    wanted = velocity_target(case.inputs["action"], case.inputs["noise"], "gr00t")
    mask = case.inputs["action_mask"]
    loss = ((velocity_bha - wanted) ** 2 * mask).sum() / mask.sum()
    assert_close(loss, case.outputs["loss"])
    loss.backward()
    for name, gradient in case.grads.items():
        found = case.head.get_parameter(name).grad
        assert found is not None
        assert_close(found, gradient)


def test_the_backbones_tokens_and_the_state_are_encoded_as_in_golden_data(case):
    context = case.context()
    tokens = case.head.memory_tokens(context.features)
    assert_close(tokens, case.outputs["processed_backbone_features"])
    if "state_features" in case.outputs:
        token = case.head.state_token(context.state, context.embodiment)
        assert_close(token, case.outputs["state_features"])


def test_denoising_equals_golden_data(case):
    head, x_bha = case.head, case.inputs["noise"]
    transition = head.transition(head.given(case.context()))
    for step in range(case.cfg.num_denoise_steps):
        steps_b = torch.full((len(x_bha),), step)
        found, _ = head.velocity(head.given(case.context()), x_bha, head.share(steps_b))
        assert_close(found, case.outputs["velocities_per_step"][step])
        x_bha = transition(x_bha, steps_b)[0]
    assert_close(x_bha, case.outputs["action_pred"])


def test_a_running_chunk_is_continued_as_in_golden_data():
    case, options = Case("n17"), Case("n17").real_time
    end, overlap = options["action_horizon"], options["rtc_overlap_steps"]
    running = RunningChunk(
        case.inputs["action"][:, end - overlap : end],
        options["rtc_frozen_steps"],
        options["rtc_ramp_rate"],
    )
    found = case.head.continued(case.context(), running, case.inputs["noise"])
    assert_close(found, case.outputs["action_pred_rtc"])
    frozen = options["rtc_frozen_steps"]
    assert torch.equal(found[:, :frozen], running.actions[:, :frozen])


def test_training_times_equal_golden_data(case):
    time_b = training_time(case.times["beta_sample"], case.cfg)
    assert_close(time_b, case.times["time"])


def test_the_public_loss_is_the_golden_one_where_all_dimensions_are_trained(case, monkeypatch):
    context, inputs = case.context(), case.inputs
    kept = inputs["action_mask"] != 0
    # rows whose mask leaves out whole steps only
    rows = (kept.all(-1) == kept.any(-1)).all(-1).nonzero().flatten()
    assert len(rows)
    context.state, context.embodiment = context.state[rows], inputs["embodiment_id"][rows]
    features = context.features
    for name in ("tokens", "is_token", "is_image"):
        setattr(features, name, getattr(features, name)[rows])
    context.view.prompts = [""] * len(rows)
    share_b = 1.0 - inputs["time"][rows]
    monkeypatch.setattr(case.head, "draw_share", lambda batch, device: share_b)
    monkeypatch.setattr(torch, "randn_like", lambda like: inputs["noise"][rows])
    mask = inputs["action_mask"][rows]
    found, _ = case.head.loss(context, inputs["action"][rows], mask[..., 0] == 0)
    wanted = velocity_target(inputs["action"], inputs["noise"], "gr00t")[rows]
    error = (case.outputs["velocity_pred"][rows] - wanted) ** 2 * mask
    assert_close(found, error.sum() / mask.sum())


def test_every_denoising_step_reads_the_original_time_bucket():
    # 7 of 10 is 700, although 1 - (1 - 7 / 10) in float32 is a little less than 0.7
    case, num_steps = Case("n15"), 10
    seen = []
    case.head.action_encoder.register_forward_hook(lambda _, inputs, __: seen.append(inputs[1][0]))
    case.head.cfg = case.cfg.replace(num_denoise_steps=num_steps)
    given = case.head.given(case.context())
    for step in range(num_steps):
        steps_b = torch.full((len(case.inputs["noise"]),), step)
        time = flow_time(case.head.share(steps_b), "gr00t")[0].item()
        assert time == pytest.approx(step / num_steps)
        case.head.velocity(given, case.inputs["noise"], case.head.share(steps_b))
    num_buckets = case.cfg.num_time_buckets
    expected = [step * num_buckets // num_steps for step in range(num_steps)]
    assert [bucket.item() for bucket in seen] == expected
