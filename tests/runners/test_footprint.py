"""What a policy needs is computed, and running out of memory says what to lower."""

import pytest
import torch
from typer.testing import CliRunner

from rrf.cli import app
from rrf.data.schema import ACTION, STATE
from rrf.networks.configs import plain_mlp
from rrf.networks.vlm.backbone import View
from rrf.networks.vlm.mock_configs import MockBackboneCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.presets import resolve
from rrf.runners.configs import AdamWCfg
from rrf.runners.footprint import Memory, footprint
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.out_of_memory import advice, explained, parts_that_fit
from rrf.workspace import HOME_VARIABLE
from tests.policies.vla.test_vlm import stats
from tests.policies.vla.tiny_models import BACKBONES
from tests.runners.supervised.conftest import write_synthetic

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


def test_a_policy_in_two_parts_has_the_backbone_of_a_whole_one_and_the_rest_is_head():
    needs, whole = (footprint(resolve(name)) for name in ("psi0-gr1-laptop", "gr1-sft-laptop"))
    counts = needs.parameters()
    for part in ("vision", "language", "embeddings"):
        assert counts[part] == whole.parameters()[part]
    built = needs.policy
    others = [built.compressor, built.age_encoder, built.fast_encoder, built.fast_projection]
    rest = sum(p.numel() for part in (*others, built.head) for p in part.parameters())
    assert counts["head"] == rest


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


def doctor(home, monkeypatch, *words):
    monkeypatch.setenv(HOME_VARIABLE, str(home))
    return CliRunner().invoke(app, ["doctor", *words], catch_exceptions=False).output


def test_doctor_counts_the_longest_prompt_of_the_dataset(tmp_path, monkeypatch):
    dataset = write_synthetic(tmp_path / "data", 24)
    words = ["--preset", "pi05-laptop", f"dataset={dataset}", "instructions=null"]
    output = doctor(tmp_path, monkeypatch, *words)
    # begin, "task go to the blue square state 128 128 action", of which two are states
    assert (
        "a state of 2, an action of 2 and 11 tokens of prompt (counted, the longest of 2" in output
    )
    assert f"here: dataset {dataset}" in output
    output = doctor(tmp_path, monkeypatch, *words, "policy.backbone.max_tokens=10")
    assert "such a prompt is refused: policy.backbone.max_tokens is 10" in output


@pytest.mark.parametrize("name", sorted(set(BACKBONES) - {"mock"}))
def test_a_family_counts_the_tokens_that_its_language_model_reads(name):
    backbone = BACKBONES[name].build().eval()
    prompt = "open the door"
    shown = torch.zeros(1, 0, dtype=torch.bool)
    if name in ("paligemma", "prismatic"):  # whose images are always there: 2 x 2 patches
        images = (torch.zeros(1, 16, 16, 3, dtype=torch.uint8),)
        view = View(images, torch.ones(1, 1, dtype=torch.bool), [prompt])
    else:
        view = View((), shown, [prompt])
    with torch.no_grad():
        features = backbone(view)
    words = int((features.is_token & ~features.is_image).sum())
    assert backbone.num_prompt_tokens(prompt) == words


def test_doctor_says_which_files_of_a_preset_are_missing_here(tmp_path, monkeypatch):
    output = doctor(tmp_path, monkeypatch, "--preset", "pi05-sft", "dataset=mine")
    for line in (
        "missing here: dataset mine: no dataset at",
        "missing here: pretrained pi05-base: 'pi05-base' (lerobot/pi05_base, about 14.5 GB)",
        "missing here: policy.backbone.tokenizer.files paligemma-3b: 'paligemma-3b'",
        "30 tokens of prompt (assumed; what the dataset decides is assumed",
    ):
        assert line in output
    assert "rrf models setup paligemma-3b" in output
    output = doctor(tmp_path, monkeypatch, "--preset", "lerobot-smolvla")
    assert "missing here: policy.options.vlm_model_name HuggingFaceTB/SmolVLM2" in output
    assert "cannot be computed without that model" in output
