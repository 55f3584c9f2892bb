"""What a policy needs is computed, and running out of memory says what to lower."""

import pytest
import torch
from typer.testing import CliRunner

from rrf.cli import app
from rrf.data.schema import ACTION, STATE
from rrf.networks.configs import plain_mlp
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.runners.configs import AdamWCfg
from rrf.runners.footprint import Memory, footprint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.out_of_memory import advice, explained, parts_that_fit
from tests.policies.vla.test_vlm import stats

TINY = SupervisedRunnerCfg(
    policy=VLMPolicyCfg(
        cameras=["a"], image_size=(64, 64), state_dim=4, action_dim=3, chunk_length=2,
        backbone=MockBackboneCfg(), trunk=plain_mlp([8], "GELU"), features=8, state_features=8,
    ),
    ema=None, batch_size=32,
)  # fmt: skip
# state encoder 4 -> 8, trunk 64 + 8 -> 8 -> 8, head 8 -> 2 * 3
PARAMETERS = (4 * 8 + 8) + (72 * 8 + 8) + (8 * 8 + 8) + (8 * 6 + 6)


def test_a_small_policy_is_counted_by_hand():
    needs = footprint(TINY)
    assert sum(needs.parameters().values()) == PARAMETERS
    assert needs.tokens() == {"vision": 16, "language": 46, "head": 1}
    memory = needs.memory("full")
    assert (memory.weights, memory.gradients) == (4 * PARAMETERS, 4 * PARAMETERS)
    assert memory.optimizer == 8 * PARAMETERS
    eighth = footprint(TINY.replace(optimizer=AdamWCfg(is_8bit=True))).memory("full")
    assert eighth.optimizer == 2 * PARAMETERS
    # float32, one token: inputs and outputs of the four linear layers
    assert memory.activations >= 4 * (72 + 8 + 8 + 8 + 8 + 6)
    inference = needs.memory("inference")
    assert (inference.gradients, inference.optimizer) == (0, 0)
    assert needs.flops(training=True) == 3 * needs.flops(training=False)


def test_the_largest_batch_and_the_fewest_parts_that_fit():
    memory = Memory(weights=100, gradients=100, optimizer=200, activations=50)
    assert memory.total(4) == 600
    assert memory.largest_batch(1000) == 12
    assert memory.largest_batch(300) == 0
    # 90 % of 1000 are usable: (900 - 400) / 50 = 10 samples, so 32 samples in 4 parts of 8
    assert parts_that_fit(TINY, memory, 1000) == 4
    assert parts_that_fit(TINY, memory, 440) is None


def test_running_out_of_memory_says_what_to_lower_and_by_how_much():
    policy = TINY.policy.build({STATE: stats(4), ACTION: stats(3)})
    with (
        pytest.raises(MemoryError, match="batch_size 32 in 1 part") as caught,
        explained(policy, TINY, torch.device("cpu")),
    ):
        torch.empty(1 << 60, dtype=torch.uint8)  # more than any machine has
    told = str(caught.value)
    assert "num_microbatches=2 (16 at once" in told
    assert "gradient_checkpointing=true" in told
    assert "batch_size=16 (another result)" in told
    with (
        pytest.raises(MemoryError),
        explained(policy, TINY, torch.device("cpu")),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")
    with (
        pytest.raises(RuntimeError, match="shapes"),
        explained(policy, TINY, torch.device("cpu")),
    ):
        raise RuntimeError("the shapes differ")
    known = advice(policy, TINY, available=80 * 10**9)
    assert "the device has 80 GB" in known


def test_the_parts_of_a_published_size_are_those_of_the_publication():
    counts = footprint(resolve("qwen2vl-2b-pretrain")).parameters()
    # 2.209 B = vision 0.665, embeddings 0.233, language 1.310
    assert round(counts["vision"] / 1e6) == 665
    assert round(counts["embeddings"] / 1e6) == 233
    assert round(counts["language"] / 1e6) == 1310


def test_the_command_tells_what_fits():
    done = CliRunner().invoke(
        app, ["doctor", "--preset", "qwen2vl-laptop", "--batch-size", "4"], catch_exceptions=False
    )
    assert done.exit_code == 0
    for text in ("billion parameters", "computed, not measured", "LoRA, 4"):
        assert text in done.output
    with pytest.raises(ValueError, match="need --preset NAME"):
        CliRunner().invoke(app, ["doctor", "--batch-size", "4"], catch_exceptions=False)


@pytest.mark.slow
def test_the_page_about_models_has_what_is_computed_today():
    from benchmarks import model_sizes
    from benchmarks.markdown import filled

    told = model_sizes.PAGE.read_text()
    assert told == filled(model_sizes.PAGE, model_sizes.blocks()), (
        "type python -m benchmarks.model_sizes"
    )
