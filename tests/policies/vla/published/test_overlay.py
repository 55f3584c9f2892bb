"""What RLinf trained goes on top of the policy that it began with, tensors only."""

import json
import os
import pickle

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from rrf.cli import app
from rrf.networks.vlm.weights import read_shapes
from rrf.policies.vla.published.formats import FORMATS
from rrf.policies.vla.published.overlay import overlaid, read, weights_file
from rrf.runners.checkpoints import checkpoint, published
from rrf.runners.checkpoints.deployable import load_lineage
from tests.runners.checkpoints.test_published_policies import CASES, saved


@pytest.fixture(params=["openpi", "openvla", "groot"])
def base(request, tmp_path):
    """A published policy: its layout, its folder, its config, its tensors."""
    cfg = CASES[request.param]()
    path, _ = saved(tmp_path / "run", cfg)
    folder = tmp_path / "theirs"
    published.export_policy(path, request.param, folder)
    [file] = folder.glob("*.safetensors")
    return request.param, folder, path, load_file(file)


def newer(tensors):
    """Other weights under the same names, each once."""
    seen, result = set(), {}
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            result[name] = tensor + 0.25
    return result


def trained(root, tensors):
    """A checkpoint of RLinf."""
    folder = root / "global_step_100/actor/model_state_dict"
    folder.mkdir(parents=True)
    torch.save(tensors, folder / "full_weights.pt")
    return root / "global_step_100"


def test_the_newer_tensors_are_read_and_the_critic_is_left_out(base, tmp_path):
    _, folder, _, tensors = base
    changed = newer(tensors)
    critic = {"value_head.mlp.0.weight": torch.ones(2, 2)}
    path = trained(tmp_path, changed | critic)
    (tmp_path / "scratch").mkdir()
    with overlaid(folder, path, tmp_path / "scratch") as overlay:
        assert overlay.left_out == ["value_head.mlp.0.weight"]
        assert overlay.num_tensors == len(changed)
        assert read_shapes(overlay.folder) == read_shapes(folder)
        before, after = weights_of(folder, base), weights_of(overlay.folder, base)
    assert list((tmp_path / "scratch").iterdir()) == []
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(moved) > 0.9 * len(changed)
    for name in moved:
        assert torch.allclose(after[name], before[name] + 0.25, atol=1e-2), name


def weights_of(folder, base):
    """The weights of the policy that is read from a folder."""
    policy = checkpoint.load_policy(base[2])
    FORMATS[base[0]].fill(policy, folder)
    return {name: value.clone() for name, value in policy.state_dict().items()}


def test_the_command_says_what_it_takes_and_the_lineage_knows_it(tmp_path):
    path, _ = saved(tmp_path / "run", CASES["openvla"]())
    folder = tmp_path / "theirs"
    published.export_policy(path, "openvla", folder)
    [file] = folder.glob("*.safetensors")
    step = trained(tmp_path, newer(load_file(file)) | {"value_head.0.bias": torch.ones(1)})
    training = tmp_path / "tiny.yaml"
    policy = json.dumps(checkpoint.load_config(path)["policy"])
    training.write_text(f"preset: openvla-laptop\noverrides: {{policy: {policy}}}\n")
    words = ["models", "import", str(folder), "--out", str(tmp_path / "ours")]
    words += ["--preset", str(training), "--overlay", str(step)]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "tensors are those of" in done.output
    assert "left out, because only training needs them: value_head.0.bias" in done.output
    ours, old = (checkpoint.read_weights(p) for p in (tmp_path / "ours", path))
    name = "backbone.projector.fc1.bias"
    assert torch.allclose(ours[name], old[name] + 0.25)
    facts = load_lineage(tmp_path / "ours").published
    assert facts["overlay"] == "full_weights.pt"
    assert len(facts["overlay_sha256"]) == 64


def test_adapters_are_added_with_rlinfs_scale(tmp_path):
    torch.manual_seed(0)
    weight, down, up = torch.randn(3, 4), torch.randn(2, 4), torch.randn(3, 2)
    start = "base_model.model.language_model.q_proj"
    torch.save(
        {
            f"{start}.base_layer.weight": weight,
            f"{start}.lora_A.default.weight": down,
            f"{start}.lora_B.default.weight": up,
            "base_model.model.language_model.norm.weight": torch.ones(4),
        },
        tmp_path / "full_weights.pt",
    )
    tensors = read(tmp_path / "full_weights.pt")
    assert set(tensors) == {"language_model.q_proj.weight", "language_model.norm.weight"}
    assert torch.allclose(tensors["language_model.q_proj.weight"], weight + up @ down)


class Runs:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_only_tensors_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "full_weights.pt"
    torch.save({"a": Runs()}, file)
    with pytest.raises(ValueError, match="holds more than tensors, so it is not read"):
        read(file)
    assert not (tmp_path / "ran").exists()
    torch.save({"a": 3}, file)
    with pytest.raises(ValueError, match="holds a, which is no tensor"):
        read(file)
    torch.save([torch.ones(1)], file)
    with pytest.raises(ValueError, match="holds a list, expected tensors by name"):
        read(file)
    file.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match=r"is not a file of torch\.save, or it is truncated"):
        read(file)
    with pytest.raises(ValueError, match=r"neither a file nor a checkpoint of RLinf.*full_weights"):
        weights_file(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"strange.weight": torch.ones(1)}, "strange.weight is unexpected"),
        ({"value_head.weight": torch.ones(1)}, "it has none of its tensors"),
        ({"language_model.lm_head.weight": torch.ones(2, 2)}, r"lm_head.weight is \[2, 2\], expec"),
    ],
    ids=str,
)
def test_weights_of_another_policy_are_refused(tensors, message, tmp_path):
    path, _ = saved(tmp_path / "run", CASES["openvla"]())
    published.export_policy(path, "openvla", tmp_path / "theirs")
    step = trained(tmp_path, tensors)
    with (
        pytest.raises(ValueError, match=f"do not fit the policy in .*{message}"),
        overlaid(tmp_path / "theirs", step, tmp_path),
    ):
        pass
