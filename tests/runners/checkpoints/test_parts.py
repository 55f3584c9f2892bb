"""The two parts of a policy as artifacts of their own, and what may be joined again."""

import shutil

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rrf import atomic
from rrf.cli import app
from rrf.lineage import DatasetLineage, Lineage
from rrf.networks.vlm.configs import TokenizerCfg
from rrf.policies.vla.configs import ValueHeadCfg
from rrf.policies.vla.psi0_configs import Psi0PolicyCfg
from rrf.runners.checkpoints import checkpoint, parts
from rrf.runners.checkpoints.deployable import deployable_digest, load_lineage
from rrf.runners.checkpoints.published import export_policy
from rrf.runners.configs import RunnerCfg
from rrf.runners.supervised.configs import SupervisedRunnerCfg
from tests.policies.vla.test_psi0 import HEADS, acted, observation, psi0
from tests.policies.vla.test_vlm import NORM_STATS, policy_cfg
from tests.policies.vla.tiny_models import BACKBONES

LINEAGE = Lineage((DatasetLineage("demo"),))


def save(folder, cfg, seed=0, weights=None):
    torch.manual_seed(seed)
    policy = cfg.build(NORM_STATS)
    for parameter in policy.head.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    state, run = checkpoint.TrainerState({}, {}), SupervisedRunnerCfg(policy=cfg)
    values = policy.state_dict() | (weights or {})
    return checkpoint.save(folder, 7, run, values, NORM_STATS, state, LINEAGE, policy.assets())


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    import tokenizers

    folder = tmp_path_factory.mktemp("tokenizer")
    model = tokenizers.models.WordLevel({"open": 0, "<pad>": 1}, unk_token="<pad>")
    tokenizers.Tokenizer(model).save(str(folder / "tokenizer.json"))
    return TokenizerCfg(files=str(folder))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tokenizer):
    backbone = BACKBONES["mock"].replace(tokenizer=tokenizer)
    cfg = psi0(backbone=backbone, value_head=ValueHeadCfg(), feature_dtype="float16")
    return save(tmp_path_factory.mktemp("run"), cfg)


@pytest.fixture(scope="module")
def both(whole, tmp_path_factory):
    return parts.split(whole, tmp_path_factory.mktemp("parts") / "out")


def test_each_part_does_what_it_did_in_the_whole_and_holds_nothing_of_the_other(whole, both):
    policy, system2, system1 = map(checkpoint.load_policy, (whole, *both))
    seen = observation()
    features = system2.see(seen)
    assert features.dtype == np.float16
    assert np.array_equal(features, policy.see(seen))
    apart = system1.act(features, np.zeros(2), seen, torch.Generator().manual_seed(0))
    assert np.array_equal(apart.actions, acted(policy, seen))
    names = [set(checkpoint.read_weights(path)) for path in (whole, *both)]
    assert names[0] == names[1] | names[2]
    assert not names[1] & names[2]
    assert {name.split(".")[0] for name in names[1]} == {"backbone", "compressor"}
    assert [(path / "tokenizer.json").exists() for path in both] == [True, False]
    for path in both:
        assert not (path / "trainer_state").exists()
        assert load_lineage(path).parent_checkpoint == deployable_digest(whole)
        RunnerCfg.from_dict(checkpoint.load_config(path))


def test_a_part_alone_refuses_what_only_the_other_can(both):
    system2, system1 = map(checkpoint.load_policy, both)
    seen = observation()
    with pytest.raises(ValueError, match=r"System 2 alone, which does not act: ask .* \(see\)"):
        system2.sample(seen)
    with pytest.raises(ValueError, match="System 2 alone"):
        system2.act(system2.see(seen), np.zeros(2), seen)
    for ask in (system1.sample, system1.see):
        with pytest.raises(ValueError, match=r"System 1 alone, .* give it features \(act\), or"):
            ask(seen)


def test_what_was_split_is_joined_to_the_same_policy(whole, both, tmp_path):
    joined = parts.join(*both, tmp_path / "joined")
    one, other = map(checkpoint.load_policy, (whole, joined))
    assert one.cfg == other.cfg
    assert np.array_equal(acted(one, observation()), acted(other, observation()))
    assert load_lineage(joined).parent_checkpoint == deployable_digest(whole)
    assert load_lineage(joined).system1_checkpoint == deployable_digest(both[1])
    assert load_lineage(joined).datasets == LINEAGE.datasets
    assert load_lineage(joined).system2_checkpoint == deployable_digest(both[0])
    again = parts.split(joined, tmp_path / "again")
    for part, path in zip(both, again, strict=True):
        assert checkpoint.deployed_cfg(path) == checkpoint.deployed_cfg(part)


def system2_of(path):
    weights = checkpoint.read_weights(path)
    return {name: v for name, v in weights.items() if name.startswith(("backbone", "compressor"))}


def test_a_system_1_of_another_training_on_the_same_system_2_is_taken(whole, both, tmp_path):
    cfg = checkpoint.deployed_cfg(whole)
    later = cfg.replace(head=HEADS["gaussian"], freezes_system2=True, feature_period=2)
    trained = save(tmp_path / "run", later, seed=1, weights=system2_of(whole))
    _, system1 = parts.split(trained, tmp_path / "parts")
    policy = checkpoint.load_policy(parts.join(both[0], system1, tmp_path / "joined"))
    assert (policy.cfg.head, policy.feature_period) == (HEADS["gaussian"], 2)
    before = checkpoint.load_policy(whole).see(observation())
    assert np.array_equal(policy.see(observation()), before)


@pytest.mark.parametrize(
    ("changes", "keeps", "message"),
    [
        ({}, False, "trained with a System 2 of other weights, .* policy.freezes_system2=true"),
        ({"feature_dtype": "float32"}, True, "feature_dtype is float32 in System 1, float16 in"),
        ({"feature_width": 16}, False, "feature_width is 16 in System 1, 8 in System 2"),
        ({"feature_tokens": 2}, False, "feature_tokens is 2 in System 1, 3 in System 2"),
        ({"prompt": "do {instruction}"}, True, "prompt is do {instruction} in System 1"),
        ({"cameras": ["wrist", "front"]}, True, r"cameras is \['wrist', 'front'\] in System 1"),
    ],
)
def test_a_system_1_that_reads_something_else_is_refused(
    whole, both, tmp_path, changes, keeps, message
):
    cfg = checkpoint.deployed_cfg(whole).replace(**changes)
    other = save(tmp_path / "run", cfg, seed=1, weights=system2_of(whole) if keeps else None)
    _, system1 = parts.split(other, tmp_path / "parts")
    with pytest.raises(ValueError, match=message):
        parts.join(both[0], system1, tmp_path / "joined")
    assert not (tmp_path / "joined").exists()


def test_another_tokenizer_is_another_system_2(whole, both, tmp_path):
    changed = tmp_path / "system2"
    shutil.copytree(both[0], changed)
    text = (changed / "tokenizer.json").read_text()
    (changed / "tokenizer.json").write_text(text.replace('"open"', '"shut"'))
    with pytest.raises(ValueError, match=r"tokenizer.json was changed after it was written"):
        parts.join(changed, both[1], tmp_path / "joined")
    facts = {n: v for n, v in atomic.read_manifest(changed).items() if n != "files"}
    (changed / "manifest.json").unlink()
    atomic.write_manifest(changed, **facts)  # as somebody would who may write to the store
    with pytest.raises(ValueError, match="a System 2 of other weights"):
        parts.join(changed, both[1], tmp_path / "joined")


def test_no_published_layout_has_two_parts(whole, tmp_path):
    with pytest.raises(ValueError, match="in two parts, which no published layout has"):
        export_policy(whole, "groot", tmp_path / "out")


def test_what_has_not_two_parts_is_refused(whole, both, tmp_path):
    other = save(tmp_path / "run", policy_cfg())
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="has not two parts: its policy is a VLMPolicyCfg"):
        parts.split(other, out)
    with pytest.raises(ValueError, match="one part of a policy already: System 2 alone"):
        parts.split(both[0], out)
    with pytest.raises(ValueError, match="is System 1 alone, not System 2 alone; write the parts"):
        parts.join(both[1], both[0], out)
    with pytest.raises(ValueError, match="is a whole policy, not System 1 alone"):
        parts.join(both[0], whole, out)
    assert not out.exists()


def test_the_commands_write_and_join_the_parts(whole, tmp_path):
    run = CliRunner().invoke
    out = tmp_path / "out"
    done = run(app, ["models", "split", str(whole), "--out", str(out)])
    assert done.exit_code == 0, done.output
    again = run(app, ["models", "split", str(whole), "--out", str(out)])
    assert again.exit_code != 0
    names = [str(out / name) for name in ("system2", "system1")]
    words = [*names, "--out", str(tmp_path / "joined"), "--feature-period", "4"]
    done = run(app, ["models", "join", *words])
    assert done.exit_code == 0, done.output
    cfg = checkpoint.deployed_cfg(tmp_path / "joined")
    assert isinstance(cfg, Psi0PolicyCfg)
    assert cfg.feature_period == 4
