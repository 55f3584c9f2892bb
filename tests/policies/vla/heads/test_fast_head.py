"""FAST: the transform, the tokenizer, and the head that writes its tokens."""

import json

import numpy as np
import pytest
import torch

from rrf.data.dataset.action_representation import Representation
from rrf.data.schema import Batch
from rrf.policies.vla.heads import fast_training
from rrf.policies.vla.heads.fast_configs import FastHeadCfg
from rrf.policies.vla.heads.fast_tokenizer import FILE, FastTokenizer, dct_matrix
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.supervised.runner import build_runner
from tests.closeness import assert_close
from tests.policies.vla.conftest import train_policy
from tests.policies.vla.heads.test_openvla_heads import observation, policy_cfg
from tests.policies.vla.test_vlm import NORM_STATS
from tests.runners.supervised.conftest import tiny_run_cfg, write_synthetic


def smooth(num_chunks=300, length=16, dims=3, seed=0):
    """Chunks of slow sines."""
    rng = np.random.default_rng(seed)
    phase, rad = rng.uniform(0, 6.28, (2, num_chunks, 1, dims))
    steps = np.arange(length)[:, None] / length
    return np.sin(phase + 0.5 * rad * steps)


@pytest.fixture(scope="module")
def tokenizer():
    return FastTokenizer.train(smooth(), scale=10, num_tokens=512)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fast")
    rng = np.random.default_rng(0)
    chunks = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], (200, 2, 3))
    (folder / FILE).write_text(FastTokenizer.train(chunks, scale=2, num_tokens=24).to_json())
    return str(folder)


def head(files, **changes):
    return FastHeadCfg(files=files, num_reserved_tokens=3, **changes)


def test_the_transform_by_hand():
    # two steps: (x0 + x1) / sqrt 2 and (x0 - x1) / sqrt 2
    half = 2**-0.5
    assert np.allclose(dct_matrix(2), [[half, half], [half, -half]])
    # four steps of 1, 2, 3, 4: the mean times 2, and the rest worked with cos(pi (n + 1/2) k / 4)
    expected = [5.0, -2.2304424973876635, 0.0, -0.15851266778110815]
    assert np.allclose(dct_matrix(4) @ [1, 2, 3, 4], expected)
    assert np.allclose(dct_matrix(7) @ dct_matrix(7).T, np.eye(7))


def test_the_lowest_frequencies_of_all_dimensions_come_first():
    # scale 2 without merges: the row is 2 * (x0 + x1) / sqrt 2 of both dimensions, then the rest
    chunks = np.array([[[1.0, 0.0], [1.0, -1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    tokenizer = FastTokenizer.train(chunks, scale=2, num_tokens=5)
    assert json.loads(tokenizer.to_json())["lowest"] == -1
    assert tokenizer.num_tokens == 5  # -1 0 1 2 3: no room for a merge
    rows = tokenizer.encode(chunks)
    assert [[token - 1 for token in row] for row in rows] == [[3, -1, 0, 1], [0, 0, 0, 0]]


def test_a_chunk_returns_up_to_its_rounding(tokenizer):
    chunks = smooth(seed=1) * 0.9
    error = np.abs(tokenizer.decode(tokenizer.encode(chunks)) - chunks)
    assert error.max() <= 16**0.5 / (2 * 10)  # sqrt(H) / (2 scale)
    rounded = tokenizer.decode(tokenizer.encode(chunks))
    assert tokenizer.encode(rounded) == tokenizer.encode(chunks)


def test_a_smooth_chunk_has_few_tokens(tokenizer):
    lengths = [len(row) for row in tokenizer.encode(smooth(seed=1))]
    assert np.mean(lengths) < 48 / 3  # one per step and dimension would be 48
    noise = np.random.default_rng(0).uniform(-1, 1, (50, 16, 3))
    assert np.mean([len(row) for row in tokenizer.encode(noise)]) > 2 * np.mean(lengths)


def test_training_twice_gives_the_same_tokenizer(tokenizer):
    assert FastTokenizer.train(smooth(), 10, 512).to_json() == tokenizer.to_json()
    assert FastTokenizer(tokenizer.to_json()).encode(smooth()) == tokenizer.encode(smooth())


def test_every_row_of_tokens_has_a_chunk(tokenizer):
    row = tokenizer.encode(smooth(1))[0]
    assert np.array_equal(tokenizer.decode([[]]), np.zeros((1, 16, 3)))
    assert np.array_equal(tokenizer.decode([[10**6]]), np.zeros((1, 16, 3)))
    # what is too long is cut, what is too short goes on with zeros
    assert np.array_equal(tokenizer.decode([row + row]), tokenizer.decode([row]))
    coefficients = np.einsum("kh,bha->bka", dct_matrix(16), tokenizer.decode([row[:1]]))
    assert np.abs(coefficients).max() > 0.05
    assert np.abs(coefficients[:, 8:]).max() < 1e-9


def test_a_coefficient_outside_the_training_is_clipped(tokenizer):
    highest = json.loads(tokenizer.to_json())["highest"]
    far = tokenizer.decode(tokenizer.encode(np.full((1, 16, 3), 50.0)))
    assert np.allclose(far, highest / 10 / 4)  # a constant c has the coefficient 4 c


def test_too_many_coefficients_and_damaged_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"allowed: num_tokens, 8; lower scale \(10\)"):
        FastTokenizer.train(smooth(), 10, 8)
    with pytest.raises(ValueError, match=r"there is no fast_tokenizer.json in"):
        FastTokenizer.load(tmp_path)
    (tmp_path / FILE).write_text('{"chunk_length": 2}')
    with pytest.raises(ValueError, match="not a FAST tokenizer"):
        FastTokenizer.load(tmp_path)


def test_the_loss_falls_until_the_head_repeats_the_chunks(files):
    torch.manual_seed(0)
    policy = policy_cfg(head(files)).build(NORM_STATS)
    action = np.random.default_rng(1).choice([-1.0, 0.0, 0.5], (4, 2, 3)).astype(np.float32)
    batch = Batch(observation(4), action, np.zeros((4, 2), bool))
    losses, metrics = train_policy(policy, batch, 80, lr=5e-3)
    assert losses[0] > 2
    assert losses[-1] < 0.3
    assert metrics["loss/token_accuracy"] == 1.0
    found = policy.sample(observation(4), greedy=True).actions
    assert np.abs(found - action).max() <= 2**0.5 / (2 * 2) + 1e-6


def test_a_sample_has_the_same_probability_when_it_is_evaluated(files):
    torch.manual_seed(0)
    policy = policy_cfg(head(files)).build(NORM_STATS)
    policy.set_noise_factor(1.3)
    sample = policy.sample(observation(8), [torch.Generator().manual_seed(n) for n in range(8)])
    tokens, stop = sample.replay["tokens"], policy.head.stop
    found = policy.evaluate(observation(8), sample.replay)
    assert_close(found.log_prob.detach(), sample.log_prob)
    after = (tokens == stop).cumsum(1) > 1
    assert after.any()
    assert not found.log_prob[after].any()
    assert not found.entropy[after].any()
    assert (tokens[after] == stop).all()


def test_padded_steps_do_not_change_the_loss(files):
    torch.manual_seed(0)
    policy = policy_cfg(head(files)).build(NORM_STATS)
    action = np.full((2, 2, 3), 0.5, np.float32)
    other = action.copy()
    other[:, 1] = -1.0
    is_pad = np.array([[False, True]] * 2)
    losses = [policy.loss(Batch(observation(), a, is_pad))[0].item() for a in (action, other)]
    assert losses[0] == losses[1]


def test_a_checkpoint_brings_its_tokenizer(files, tmp_path):
    policy = policy_cfg(head(files)).build(NORM_STATS)
    assert list(policy.assets()) == [FILE]
    (tmp_path / FILE).write_text(policy.assets()[FILE])
    again = policy.cfg.replace(head=head("/gone")).rebuild(NORM_STATS, tmp_path)
    assert again.head.tokenizer.to_json() == policy.head.tokenizer.to_json()
    with pytest.raises(ValueError, match=r"there is no fast_tokenizer.json in '/gone'"):
        policy.cfg.replace(head=head("/gone")).build(NORM_STATS)


def test_a_tokenizer_for_other_chunks_is_refused(files):
    with pytest.raises(ValueError, match="for chunks of 2 steps and 3 dimensions"):
        policy_cfg(head(files)).replace(chunk_length=3).build(NORM_STATS)


def test_a_tokenizer_is_trained_on_a_dataset(tmp_path):
    root = write_synthetic(tmp_path / "lab", 12)
    made = fast_training.train(str(root), tmp_path / "made", 8, "min_max", num_tokens=256)
    again = FastTokenizer.load(tmp_path / "made")
    assert again.to_json() == made.to_json()
    assert (again.chunk_length, again.action_dim) == (8, 2)
    chunks = np.zeros((1, 8, 2))
    assert np.abs(again.decode(again.encode(chunks))).max() <= 8**0.5 / (2 * 10)


def test_a_tokenizer_is_trained_on_what_the_policy_predicts(tmp_path):
    root = write_synthetic(tmp_path / "lab", 12)
    pairs = ((0, 0), (1, 1))
    for name, representation in {
        "relative": Representation(relative=pairs),
        "delta": Representation(delta=pairs[1:]),
    }.items():
        made = fast_training.train(
            str(root), tmp_path / name, 8, "min_max", 10, 512, representation=representation
        )
        policy = tiny_vlm(tmp_path / name, representation)
        runner = build_runner(tiny_run_cfg(root, policy=policy), tmp_path / f"run-{name}")
        batch = runner.split.training.batch(np.arange(runner.split.training.num_frames))
        chunks = runner.policy._target(batch.action, batch.observation).numpy()[
            ~batch.is_pad.any(1)
        ]
        assert runner.policy.head.tokenizer.to_json() == made.to_json()
        # What the policy is trained on comes back up to rounding, and no coefficient is clipped.
        error = np.abs(made.decode(made.encode(chunks)) - chunks)
        assert error.max() <= 8**0.5 / (2 * 10) + 1e-6


def tiny_vlm(files, representation):
    backbone = policy_cfg(head(str(files))).backbone
    language = backbone.language.replace(vocabulary_size=600)
    backbone = backbone.replace(language=language)
    return VLMPolicyCfg(
        backbone=backbone, head=head(str(files)), chunk_length=8, action_normalization="min_max",
        relative_actions=list(representation.relative), delta_actions=list(representation.delta),
    )  # fmt: skip
