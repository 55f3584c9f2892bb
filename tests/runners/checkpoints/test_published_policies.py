"""Published policies as checkpoints and back: in every layout, exported = in-process actions."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from rrf import atomic
from rrf.cli import app
from rrf.data.dataset.action_representation import PREDICTED
from rrf.data.schema import ACTION, STATE, Observation
from rrf.lineage import Lineage
from rrf.networks import tensor_files
from rrf.networks.vlm.build import without_adapters
from rrf.networks.vlm.configs import LoRACfg, TokenizerCfg
from rrf.policies.vla.configs import CompactVLACfg
from rrf.policies.vla.published.formats import FORMATS, format_at
from rrf.presets import resolve
from rrf.runners.checkpoints import checkpoint, published
from rrf.runners.checkpoints.deployable import load_lineage
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from rrf.runners.supervised.runner import build_runner
from rrf.workspace import HOME_VARIABLE
from tests.policies.vla import pi_golden
from tests.policies.vla.groot_golden import Case
from tests.policies.vla.heads import test_openvla_heads
from tests.policies.vla.published.test_groot_published import tiny_policy
from tests.runners.supervised.conftest import write_synthetic


def stats(dims, seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(-2, 0, dims)
    high = low + rng.uniform(0.5, 3, dims)
    found = {"min": low - 1, "max": high + 1, "q01": low, "q99": high, "mean": (low + high) / 2}
    return {k: v.tolist() for k, v in (found | {"std": (high - low) / 4}).items()}


def pi_cfg(version):
    mode = {"pi0": "mean_std", "pi05": "quantile"}[version]
    prompts = {"pi0": "{instruction}\n", "pi05": "Task: {instruction}, State: {state};\nAction: "}
    cfg = pi_golden.tiny(
        version,
        cameras=["front"], state_dim=4, action_dim=3,
        state_normalization=mode, action_normalization=mode, prompt=prompts[version],
    )  # fmt: skip
    num_words = min(256, pi_golden.sizes(version)["vocab"] - 4)
    words = TokenizerCfg(words=[str(number) for number in range(num_words)])
    return cfg.replace(backbone=cfg.backbone.replace(tokenizer=words))


def groot_cfg():
    return tiny_policy(Case("n17")).cfg


CASES = {
    "openpi": lambda: pi_cfg("pi0"),
    "openpi-05": lambda: pi_cfg("pi05"),
    "lerobot": lambda: pi_cfg("pi0"),
    "lerobot-05": lambda: pi_cfg("pi05"),
    "openvla": lambda: test_openvla_heads.policy_cfg(test_openvla_heads.TOKENS),
    "openvla-oft": lambda: test_openvla_heads.policy_cfg(test_openvla_heads.REGRESSION),
    "groot": groot_cfg,
}
PRESETS = {
    "openpi": "pi0-sft", "openpi-05": "pi05-sft", "lerobot": "pi0-sft", "lerobot-05": "pi05-sft",
    "openvla": "openvla-sft", "openvla-oft": "openvla-oft-sft", "groot": "groot-n17-sft",
}  # fmt: skip


def saved(folder, cfg, adapter_std=0.1):
    """A checkpoint of a new policy, and the policy."""
    norm_stats = {STATE: stats(cfg.state_dim, 0), ACTION: stats(cfg.action_dim, 1)}
    torch.manual_seed(0)
    policy = cfg.build(norm_stats)
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:  # adapters begin as zeros
            torch.nn.init.normal_(parameter, std=adapter_std)
    state = checkpoint.TrainerState({}, {})
    run = SupervisedRunnerCfg(policy=cfg)
    weights, texts = policy.state_dict(), policy.assets()
    return checkpoint.save(
        folder, 7, run, weights, norm_stats, state, Lineage(), texts
    ), policy.eval()


def actions(policy):
    rng, cfg = np.random.default_rng(0), policy.cfg
    shape = (2, *cfg.image_size, 3)
    images = {name: rng.integers(0, 256, shape, dtype=np.uint8) for name in cfg.cameras}
    state = rng.uniform(-1, 1, (2, cfg.state_dim)).astype(np.float32)
    seen = Observation(images, state, ["open", "open"])
    return policy.sample(seen, torch.Generator().manual_seed(0)).actions


def imported(folder, cfg, out, group=None):
    """The policy of a published folder whose cameras are only given if it does not say them."""
    layout = format_at(folder)
    keeps = layout in (FORMATS["openpi"], FORMATS["openvla"])
    cameras = {} if keeps else {"cameras": [], "image_size": (0, 0)}
    bare = cfg.replace(state_dim=0, action_dim=0, chunk_length=1, **cameras)
    if layout is FORMATS["openvla"]:  # its files do not say the length of a chunk
        bare = bare.replace(chunk_length=cfg.chunk_length)
    run = published.fitted(SupervisedRunnerCfg(policy=bare), folder, layout, group)
    return checkpoint.load_policy(published.import_policy(str(folder), layout, run, out, group))


@pytest.mark.parametrize("case", CASES)
def test_a_checkpoint_acts_the_same_after_export_and_import(case, tmp_path):
    cfg = CASES[case]()
    path, policy = saved(tmp_path / "run", cfg)
    folder, layout = tmp_path / "theirs", case.partition("-")[0]
    published.export_policy(path, layout, folder)
    assert format_at(folder) is format_at(folder, layout) is FORMATS[layout]
    assert FORMATS[layout].preset(folder) == PRESETS[case]
    again = imported(folder, cfg, tmp_path / "ours")
    assert again.cfg.cameras == cfg.cameras
    assert (again.cfg.state_dim, again.cfg.action_dim) == (cfg.state_dim, cfg.action_dim)
    assert np.abs(actions(again) - actions(policy)).max() < 1e-5
    lineage = load_lineage(tmp_path / "ours")
    assert lineage.published == {"name": str(folder)}


@pytest.mark.parametrize("case", ["lerobot", "openvla", "groot"])
def test_adapters_are_merged_on_export(case, tmp_path):
    cfg = CASES[case]()
    plain, _ = saved(tmp_path / "plain", cfg)
    backbone = cfg.backbone.replace(tuning=LoRACfg(rank=2))
    path, policy = saved(tmp_path / "run", cfg.replace(backbone=backbone))
    published.export_policy(path, case, tmp_path / "theirs")
    again = imported(tmp_path / "theirs", cfg, tmp_path / "ours")
    assert np.abs(actions(again) - actions(policy)).max() < 1e-5
    # and a policy with adapters starts from published weights
    published.export_policy(plain, case, tmp_path / "base")
    published.fill(policy, str(tmp_path / "base"))
    for name, parameter in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.zeros_(parameter)
    start = checkpoint.load_policy(plain)
    assert np.abs(actions(policy) - actions(start)).max() < 1e-5


@pytest.mark.parametrize("case", ["lerobot", "openvla-oft", "groot"])
def test_adapters_on_a_bfloat16_base_are_exported_as_what_was_trained(case, tmp_path):
    cfg, layout = CASES[case](), case.partition("-")[0]
    half = cfg.backbone.replace(dtype="bf16")
    adapted = cfg.replace(backbone=half.replace(tuning=LoRACfg(rank=4, alpha=4)))
    path, policy = saved(tmp_path / "run", adapted, adapter_std=1e-4)
    with pytest.raises(ValueError, match="the adapters would be lost"):
        published.export_policy(path, layout, tmp_path / "lost", dtype="bf16")
    assert not (tmp_path / "lost").exists()
    merge = published.export_policy(path, layout, tmp_path / "theirs")
    assert 0 < merge.deviation < 0.01
    again = imported(tmp_path / "theirs", cfg.replace(backbone=half), tmp_path / "ours")
    assert again.cfg.backbone.dtype == "fp32"
    exact = policy.float()
    learned = actions(exact)
    with without_adapters(exact):
        change = np.abs(actions(exact) - learned).max()
    assert np.abs(actions(again) - learned).max() < 0.05 * change


def test_the_number_format_of_an_export_is_a_choice(tmp_path):
    path, _ = saved(tmp_path / "run", CASES["lerobot"]())
    run = CliRunner().invoke(
        app, ["models", "export", str(path), "--format", "lerobot", "--dtype", "bf16",
              "--out", str(tmp_path / "half")],
    )  # fmt: skip
    assert run.exit_code == 0, run.output
    tensors = load_file(tmp_path / "half/model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "half/config.json").read_text())["dtype"] == "bfloat16"
    wrong = CliRunner().invoke(
        app, ["models", "export", str(path), "--format", "lerobot", "--dtype", "fp64",
              "--out", str(tmp_path / "wrong")],
    )  # fmt: skip
    assert "--dtype is 'fp64', allowed: fp32, bf16" in str(wrong.exception) + wrong.output


def test_the_command_says_how_far_a_merge_is_from_the_adapters(tmp_path):
    cfg = CASES["lerobot"]()
    backbone = cfg.backbone.replace(tuning=LoRACfg(rank=2))
    path, _ = saved(tmp_path / "run", cfg.replace(backbone=backbone))
    arguments = ["models", "export", str(path), "--format", "lerobot", "--out"]
    run = CliRunner().invoke(app, [*arguments, str(tmp_path / "theirs")])
    assert run.exit_code == 0, run.output
    said = re.search(
        r"adapters merged in fp32: they change the outputs of their layers by (\S+), the merge "
        r"errs by (\S+) ",
        run.output.replace("\n", " "),
    )
    assert said, run.output
    assert float(said[1]) > 1e4 * float(said[2]) > 0


def test_a_datasets_statistics_have_floors_when_they_replace_published_ones(tmp_path):
    cfg = CASES["lerobot"]()
    path, _ = saved(tmp_path / "run", cfg)
    published.export_policy(path, "lerobot", tmp_path / "theirs")
    given = {STATE: stats(cfg.state_dim, 0), ACTION: stats(cfg.action_dim, 1)}
    trembling = {"min": 0.3 - 3e-8, "max": 0.3 + 3e-8, "mean": 0.3, "std": 1e-8}
    for name, value in trembling.items():
        given[STATE][name][1] = value
    layout = FORMATS["lerobot"]
    run = published.fitted(SupervisedRunnerCfg(policy=cfg), tmp_path / "theirs", layout, None)
    with pytest.warns(
        UserWarning, match="the given statistics: observation.state.1 has a standard"
    ):
        out = published.import_policy(
            str(tmp_path / "theirs"), layout, run, tmp_path / "ours", None, given
        )
    assert checkpoint.load_policy(out).normalize_state.scale[1] == pytest.approx(0.0003)


def test_policies_of_other_families_are_refused(tmp_path):
    vla, _ = saved(tmp_path / "vla", CASES["openvla"]())
    pi, _ = saved(tmp_path / "pi", CASES["openpi"]())
    for path, layout, message in (
        (vla, "lerobot", "joins PrismaticCfg and ActionTokenHeadCfg"),
        (pi, "groot", "has a PiExpertHead, but GR00T's checkpoints need a GrootHead"),
        (pi, "openvla", "policy.backbone is PaliGemmaCfg"),
        (pi, "onnx", "allowed: openpi, lerobot, openvla, groot"),
    ):
        with pytest.raises(ValueError, match=message):
            published.export_policy(path, layout, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    published.export_policy(vla, "openvla", tmp_path / "theirs")
    with pytest.raises(ValueError, match=r"not in the layout of groot .* looks like openvla"):
        format_at(tmp_path / "theirs", "groot")
    with pytest.raises(ValueError, match="in no known layout"):
        format_at(pi)
    with pytest.raises(ValueError, match=r"CompactVLA.*no published weights"):
        published.fill(CompactVLACfg().build({STATE: stats(4, 0), ACTION: stats(4, 1)}), "x")
    cfg = SupervisedRunnerCfg()
    with pytest.raises(
        ValueError, match=r"choose one with a backbone, e\.g\. --preset openvla-sft"
    ):
        published.fitted(cfg, tmp_path / "theirs", FORMATS["openvla"], None)


def test_statistics_are_chosen_by_name_when_there_are_several(tmp_path):
    cfg = CASES["openvla"]()
    path, _ = saved(tmp_path / "run", cfg)
    published.export_policy(path, "openvla", tmp_path / "theirs", "lab")
    file = tmp_path / "theirs/config.json"
    config = json.loads(file.read_text())
    config["norm_stats"]["other"] = config["norm_stats"]["lab"]
    file.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"several statistics, known: lab, other; .*--statistics"):
        imported(tmp_path / "theirs", cfg, tmp_path / "ours")
    imported(tmp_path / "theirs", cfg, tmp_path / "ours", "other")


def test_the_commands_export_and_import(tmp_path):
    cfg = pi_cfg("pi0")
    path, policy = saved(tmp_path / "run", cfg)
    file = tmp_path / "tiny.yaml"
    sizes = {
        "policy.backbone.vision": cfg.backbone.vision.to_dict(),
        "policy.backbone.gemma": cfg.backbone.gemma.to_dict(),
        "policy.backbone.vocabulary_size": cfg.backbone.vocabulary_size,
        "policy.backbone.image.size": list(cfg.backbone.image.size),
        "policy.backbone.tokenizer.words": cfg.backbone.tokenizer.words,
        "policy.head.width": cfg.head.width,
        "policy.head.mlp_dim": cfg.head.mlp_dim,
        "policy.head.num_heads": cfg.head.num_heads,
        "policy.head.max_dims": cfg.head.max_dims,
        "policy.head.num_denoise_steps": cfg.head.num_denoise_steps,
    }
    file.write_text(json.dumps({"preset": "pi0-laptop", "overrides": sizes}))
    run = CliRunner()
    theirs, ours = str(tmp_path / "theirs"), str(tmp_path / "ours")
    words = ["models", "export", str(path), "--format", "lerobot", "--out", theirs]
    assert run.invoke(app, words, catch_exceptions=False).exit_code == 0
    words = ["models", "import", theirs, "--out", ours, "--preset", str(file)]
    done = run.invoke(app, words, catch_exceptions=False)
    height, width = cfg.image_size
    expected = f"cameras front of {height} x {width} px, state 4, action 3, "
    assert f"{expected}{cfg.chunk_length} actions per chunk" in done.output
    assert np.abs(actions(checkpoint.load_policy(ours)) - actions(policy)).max() < 1e-5
    with pytest.raises(ValueError, match="exists already"):
        run.invoke(app, words, catch_exceptions=False)


def test_an_import_of_openpi_has_to_say_whether_actions_are_relative(tmp_path):
    path, _ = saved(tmp_path / "run", pi_cfg("pi0"))
    published.export_policy(path, "openpi", tmp_path / "theirs")
    words = ["models", "import", str(tmp_path / "theirs"), "--out", str(tmp_path / "ours")]
    words += ["policy.cameras=[front]", "policy.image_size=[16, 16]"]
    with pytest.raises(
        ValueError, match=r"no file in .* relative to the state .* say policy\.rela"
    ):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (tmp_path / "ours").exists()


def test_statistics_that_are_given_must_fit_relative_actions(tmp_path):
    cfg = pi_cfg("pi0")
    path, _ = saved(tmp_path / "run", cfg)
    published.export_policy(path, "openpi", tmp_path / "theirs")
    run = SupervisedRunnerCfg(policy=cfg.replace(relative_actions=[(0, 0)]))
    layout, given = FORMATS["openpi"], {STATE: stats(4, 0), ACTION: stats(3, 1)}
    with pytest.raises(ValueError, match=r"nothing of those \(action\.predicted\)"):
        published.import_policy(str(tmp_path / "theirs"), layout, run, tmp_path / "a", None, given)
    published.import_policy(str(tmp_path / "theirs"), layout, run, tmp_path / "b")
    assert "action.predicted" in checkpoint.load_norm_stats(tmp_path / "b")


@pytest.mark.parametrize("case", ["openpi", "openvla", "groot"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("relative_actions", [(0, 0)]),
        ("delta_actions", [(0, 0)]),
        ("state_modes", {0: "none"}),
        ("action_modes", {0: "none"}),
    ],
)
def test_what_a_layout_has_no_place_for_is_not_written(case, name, value, tmp_path):
    cfg = CASES[case]().replace(**{name: value})
    given = {STATE: stats(cfg.state_dim, 0), ACTION: stats(cfg.action_dim, 1)}
    policy = cfg.build(given | {PREDICTED: given[ACTION]})
    with pytest.raises(ValueError, match=f"has {name} .* the layout of {case} has no place"):
        FORMATS[case].write(policy, given, tmp_path / "out", None)
    assert not (tmp_path / "out").exists()


def test_openvlas_layout_takes_actions_by_their_quantiles(tmp_path):
    cfg = CASES["openvla"]().replace(action_normalization="mean_std")
    given = {STATE: stats(cfg.state_dim, 0), ACTION: stats(cfg.action_dim, 1)}
    with pytest.raises(ValueError, match=r"action_normalization is mean_std, .* q01 to q99"):
        FORMATS["openvla"].write(cfg.build(given), given, tmp_path / "out", None)


def test_large_checkpoints_are_divided_and_read_back(tmp_path, monkeypatch):
    cfg = CASES["openpi"]()
    policy = cfg.build({STATE: stats(cfg.state_dim, 0), ACTION: stats(cfg.action_dim, 1)})
    shard_bytes = sum(tensor.nbytes for tensor in policy.state_dict().values()) // 6
    monkeypatch.setattr(tensor_files, "SHARD_BYTES", shard_bytes)
    path, policy = saved(tmp_path / "run", cfg)
    index = json.loads((path / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    size = sum(tensor.nbytes for tensor in policy.state_dict().values())
    assert index["metadata"]["total_size"] == size
    assert all((path / file).stat().st_size < 2 * shard_bytes for file in files)
    manifest = atomic.check_manifest(path)
    assert set(files) < set(manifest["files"])
    copy = checkpoint.export(path, tmp_path / "deployed")
    assert np.array_equal(actions(checkpoint.load_policy(copy)), actions(policy))
    (copy / files[1]).unlink()
    with pytest.raises(ValueError, match=f"{files[1]} is missing"):
        checkpoint.load_policy(copy)
    (path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x"}}')
    with pytest.raises(ValueError, match="is not the plain name of a file"):
        checkpoint.read_weights(path)


def test_a_training_starts_from_a_published_policy_with_its_own_statistics(tmp_path, monkeypatch):
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    dataset = str(write_synthetic(tmp_path / "data", 24))
    cfg = pi_cfg("pi0").replace(state_dim=2, action_dim=2, image_size=(16, 16))
    path, policy = saved(tmp_path / "run", cfg)
    published.export_policy(path, "lerobot", tmp_path / "theirs")
    run = SupervisedRunnerCfg(
        dataset=dataset, policy=cfg, pretrained=str(tmp_path / "theirs"), ema=None, max_steps=1,
        batch_size=2,
    )  # fmt: skip
    runner = build_runner(run, tmp_path / "new")
    mine = runner.policy.state_dict()
    assert all(torch.equal(mine[name], value) for name, value in policy.state_dict().items())
    of_data = json.loads((tmp_path / "data/norm_stats.json").read_text())
    assert {key: runner.norm_stats[key] for key in of_data} == of_data
    assert runner.lineage.published == {"name": str(tmp_path / "theirs")}
    runner.run()
    again = build_runner(run, tmp_path / "new")
    again.run()  # resumes; the published weights do not come back
    name = "head.action_out_proj.weight"
    assert not torch.equal(again.policy.state_dict()[name], policy.state_dict()[name])
    with pytest.raises(ValueError, match=r"'pi0-base' .* fetch it: rrf models setup pi0-base"):
        build_runner(run.replace(pretrained="pi0-base"), tmp_path / "other")
    for preset, model in (("qwen2vl-2b-pretrain", "qwen2-vl-2b"), ("pi0-sft", "paligemma-3b")):
        # the tokenizer is asked for before anything large is built
        with pytest.raises(ValueError, match=f"fetch it: rrf models setup {model}"):
            build_runner(resolve(preset, [f"dataset={dataset}", "device=cpu"]), tmp_path / "other")
