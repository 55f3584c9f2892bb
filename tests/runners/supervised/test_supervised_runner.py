"""The supervised loop: determinism, resuming, stopping, and what it refuses."""

import dataclasses
import json
import signal
import warnings

import numpy as np
import pytest
import torch

from rrf.data.conversion.lerobot_writer import write_dataset
from rrf.data.dataset.floors import FloorsCfg
from rrf.data.dataset.held_out import is_held_out
from rrf.data.dataset.opening import open_dataset
from rrf.data.dataset.seen_images import SeenImages
from rrf.data.dataset.stats import norm_stats
from rrf.data.schema import STATE, Vector
from rrf.policies import DiscreteTokenHeadCfg
from rrf.policies.vla.vlm_configs import VLMPolicyCfg
from rrf.runners.checkpoints import checkpoint
from rrf.runners.checkpoints.deployable import deployable_digest
from rrf.runners.interruption import Interrupted, SignalWatch
from rrf.runners.process_group import known_device
from rrf.runners.supervised.frames import open_split
from rrf.runners.supervised.runner import SupervisedRunner
from tests.policies.vla.tiny_models import BACKBONES
from tests.runners.supervised.conftest import (
    SCHEMA,
    make_episode,
    tiny_policy_cfg,
    tiny_run_cfg,
    write_synthetic,
)


def make_runner(cfg, run_dir):
    split = open_split(
        cfg.dataset, cfg.policy.chunk_length, cfg.instructions, cfg.validation_fraction
    )
    return SupervisedRunner(cfg, split, run_dir)


def train(cfg, run_dir, **options):
    runner = make_runner(cfg, run_dir)
    runner.run(**options)
    return runner


def tensors_of(runner) -> dict[str, torch.Tensor]:
    """Everything that decides how a run goes on."""
    optimizer = {
        f"{name}/{key}": value
        for name, parameter in runner.policy.named_parameters()
        for key, value in runner.optimizer.state[parameter].items()
    }
    average = {f"ema/{name}": value for name, value in runner.deployed.state_dict().items()}
    return runner.policy.state_dict() | optimizer | average


def assert_same_bits(first, second):
    mine, other = tensors_of(first), tensors_of(second)
    assert mine.keys() == other.keys()
    assert [name for name in mine if not torch.equal(mine[name], other[name])] == []


class StopAfter(SignalWatch):
    """A signal watch to which SIGTERM arrives when the given step has been reported."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def __call__(self, progress):
        if progress.step >= self.step:
            self.received = signal.SIGTERM


class RecordingTracker:
    run_id = "run"

    def __init__(self):
        self.rows = []

    def log_metrics(self, metrics, step):
        self.rows.append((step, metrics))


def test_the_same_seed_gives_the_same_parameters_and_another_seed_does_not(dataset, tmp_path):
    cfg = tiny_run_cfg(dataset)
    first = train(cfg, tmp_path / "a")
    assert_same_bits(first, train(cfg, tmp_path / "b"))
    other = train(cfg.replace(seed=1), tmp_path / "c")
    assert not torch.equal(first.policy.head.output.weight, other.policy.head.output.weight)


@pytest.mark.parametrize("averaging", [True, False])
def test_ten_steps_and_ten_more_equal_twenty_steps(dataset, tmp_path, averaging):
    cfg = tiny_run_cfg(dataset)
    cfg = cfg if averaging else cfg.replace(ema=None)
    straight = train(cfg, tmp_path / "straight")
    stop = StopAfter(10)
    with pytest.raises(Interrupted):
        train(cfg, tmp_path / "resumed", on_progress=stop, signals=stop)
    assert checkpoint.latest(tmp_path / "resumed").name == "global_step_11"
    resumed = train(cfg, tmp_path / "resumed")
    assert_same_bits(straight, resumed)


def test_global_randomness_neither_disturbs_a_run_nor_is_disturbed_by_it(dataset, tmp_path):
    cfg = tiny_run_cfg(dataset)
    torch.manual_seed(1)
    first = train(cfg, tmp_path / "a")
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    assert_same_bits(first, train(cfg, tmp_path / "b"))


def test_a_stopped_run_says_where_it_saved_and_ends_with_the_signals_exit_code(dataset, tmp_path):
    stop = StopAfter(5)
    with pytest.raises(Interrupted, match=r"stopped by SIGTERM; saved .*global_step_6") as stopped:
        train(tiny_run_cfg(dataset), tmp_path, on_progress=stop, signals=stop)
    assert stopped.value.code == 143


def test_a_finished_run_is_not_trained_again(dataset, tmp_path):
    cfg = tiny_run_cfg(dataset)
    first = make_runner(cfg, tmp_path).run()
    tracker = RecordingTracker()
    again = make_runner(cfg, tmp_path).run(tracker)
    assert tracker.rows == []
    assert again == first
    assert again["steps"] == 20


def test_gradients_longer_than_the_limit_are_scaled_down_to_it(dataset, tmp_path):
    runner = make_runner(tiny_run_cfg(dataset, max_grad_norm=1e-3, ema=None), tmp_path)
    metrics = runner._train_step()
    assert metrics["train/grad_norm"] > 1e-3
    squares = [parameter.grad.square().sum() for parameter in runner.policy.parameters()]
    assert torch.stack(squares).sum().sqrt().item() == pytest.approx(1e-3, rel=1e-3)


def test_metrics_arrive_at_every_interval_with_the_validation_loss(dataset, tmp_path):
    tracker = RecordingTracker()
    train(tiny_run_cfg(dataset), tmp_path, tracker=tracker)
    assert [step for step, _ in tracker.rows] == [5, 10, 15, 20]
    assert "validation/total" not in tracker.rows[0][1]
    assert "validation/total" in tracker.rows[1][1]
    assert {"loss/total", "loss/action_l1", "train/grad_norm", "train/learning_rate"} <= set(
        tracker.rows[0][1]
    )


def test_old_checkpoints_are_removed(dataset, tmp_path):
    train(tiny_run_cfg(dataset, save_interval=4, num_checkpoints_kept=2), tmp_path)
    assert list(checkpoint.steps(tmp_path)) == [16, 20]


def test_held_out_episodes_are_the_same_for_every_selection_of_instructions(dataset):
    assert [episode for episode in range(12) if is_held_out(episode, 0.25)] == [3, 7, 11]
    everything = open_split(dataset, 2, None, 0.25)
    red = open_split(dataset, 2, ["go to the red square"], 0)
    assert (everything.training.num_episodes, everything.validation.num_episodes) == (6, 2)
    assert (red.training.num_episodes, red.validation) == (4, None)


def test_too_few_episodes_to_hold_one_out_is_an_error_that_says_so(tmp_path):
    small = write_synthetic(tmp_path / "small", num_episodes=1)
    with pytest.raises(ValueError, match=r"1 episodes are too few to hold out 25% of them"):
        open_split(small, 2, None, 0.25)


def test_a_missing_dataset_is_an_error_with_the_commands_that_bring_it(tmp_path):
    with pytest.raises(ValueError, match=r"no dataset at .*; make it again where it came from"):
        open_split(tmp_path / "nothing", 2, None, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cameras": ["wrist"]}, "policy.cameras names 'wrist', but the dataset has front"),
        ({"image_size": (8, 8)}, r"policy.image_size is \(8, 8\), but the dataset has \(16, 16\)"),
        ({"action_dim": 7}, "policy.action_dim is 7, but the dataset has 2"),
    ],
)
def test_a_policy_that_does_not_fit_the_dataset_is_refused(dataset, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        make_runner(tiny_run_cfg(dataset, policy=tiny_policy_cfg(**changes)), tmp_path)


@pytest.mark.parametrize(
    ("count", "cards"), [(1, "one GPU, cuda:0; "), (3, "3 GPUs, cuda:0 to cuda:2; ")]
)
def test_a_card_that_is_not_there_is_named_with_those_that_are(monkeypatch, count, cards):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert known_device("cuda") == torch.device("cuda")
    assert known_device(f"cuda:{count - 1}").index == count - 1
    with pytest.raises(ValueError, match=cards):
        known_device(f"cuda:{count}")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_an_error_that_says_so(dataset, tmp_path):
    with pytest.raises(ValueError, match=r"device is 'cuda:0', but torch sees no GPU"):
        make_runner(tiny_run_cfg(dataset, device="cuda:0"), tmp_path)


class PoisonedFrames:
    """Frames in which, from a given batch on, one state is NaN."""

    def __init__(self, frames, first_bad_batch):
        self.frames, self.first_bad_batch, self.num_batches = frames, first_bad_batch, 0
        self.schema, self.norm_stats = frames.schema, frames.norm_stats
        self.num_frames, self.draw, self.readers = frames.num_frames, frames.draw, frames.readers

    def batch(self, indices):
        batch = self.frames.batch(indices)
        self.num_batches += 1
        if self.num_batches > self.first_bad_batch:
            batch.observation.state = batch.observation.state.copy()
            batch.observation.state[0, 0] = np.nan
        return batch


def test_a_nan_loss_stops_before_the_weights_change_and_names_the_last_good_checkpoint(
    dataset, tmp_path
):
    cfg = tiny_run_cfg(dataset)
    split = open_split(dataset, 2, None, 0)
    poisoned = dataclasses.replace(split, training=PoisonedFrames(split.training, 13))
    runner = SupervisedRunner(cfg, poisoned, tmp_path)
    with pytest.raises(ValueError, match=r"loss is nan at step 14 of 20.*global_step_10.*rrf data"):
        runner.run()
    assert all(torch.isfinite(value).all() for value in runner.policy.state_dict().values())
    poisoned = dataclasses.replace(split, training=PoisonedFrames(split.training, 0))
    fresh = SupervisedRunner(cfg, poisoned, tmp_path / "fresh")
    with pytest.raises(ValueError, match=r"at step 1 of 20.*no checkpoint had been saved yet"):
        fresh.run()


def test_a_run_directory_of_another_config_is_refused(dataset, tmp_path):
    train(tiny_run_cfg(dataset), tmp_path)
    with pytest.raises(ValueError, match=r"another config \(batch_size, seed differ\).*--run-dir"):
        train(tiny_run_cfg(dataset, seed=3, batch_size=8), tmp_path)


def test_a_run_directory_of_another_architecture_is_refused_by_naming_the_parameters(
    dataset, tmp_path
):
    train(tiny_run_cfg(dataset), tmp_path)
    wider = tiny_run_cfg(dataset, policy=tiny_policy_cfg(state_features=16))
    with pytest.raises(ValueError, match=r"state_encoder.weight is \[8, 2\], expected \[16, 2\]"):
        train(wider, tmp_path)


def test_fine_tuning_starts_from_the_parents_weights_and_keeps_its_normalisation(dataset, tmp_path):
    parent = train(tiny_run_cfg(dataset), tmp_path / "parent")
    path = checkpoint.latest(tmp_path / "parent")
    other = write_synthetic(tmp_path / "other", num_episodes=4)
    stats = json.loads((other / "norm_stats.json").read_text())
    assert stats[STATE]["mean"] != parent.norm_stats[STATE]["mean"]
    child = make_runner(tiny_run_cfg(other, init_from=str(tmp_path / "parent")), tmp_path / "child")
    assert child.norm_stats == parent.norm_stats
    weights = parent.deployed.state_dict()
    assert all(torch.equal(weights[k], value) for k, value in child.policy.state_dict().items())
    child.run()
    manifest = json.loads((checkpoint.latest(tmp_path / "child") / "manifest.json").read_text())
    assert manifest["lineage"]["parent_checkpoint"] == deployable_digest(path)


def test_a_run_that_prepares_images_unlike_its_parent_says_so(dataset, tmp_path):
    cfg = tiny_run_cfg(dataset, max_steps=1)
    policy = VLMPolicyCfg(backbone=BACKBONES["mock"], chunk_length=2).fitted(SCHEMA)
    train(cfg.replace(policy=policy), tmp_path / "parent")
    other = policy.backbone.replace(image=policy.backbone.image.replace(keeps=0.9))
    child = cfg.replace(policy=policy.replace(backbone=other), init_from=str(tmp_path / "parent"))
    with pytest.warns(UserWarning, match=r"policy.backbone.image.keeps: 1.0 -> 0.9 \(parent"):
        make_runner(child, tmp_path / "child")


def write_trembling(root):
    """As `write_synthetic`, with a slide in the state that only trembles."""
    rng, trembling = np.random.default_rng(0), Vector(("x", "slide"), "m")

    def episodes():
        for number in range(4):
            episode = make_episode(number)
            slide = 0.3 + 1e-8 * rng.normal(size=len(episode.state))
            state = np.stack([episode.state[:, 0], slide], 1).astype(np.float32)
            yield dataclasses.replace(episode, state=state)

    write_dataset(root, dataclasses.replace(SCHEMA, state=trembling), episodes())
    (root / "norm_stats.json").write_text(json.dumps(norm_stats(root)))
    return root


def test_a_nearly_constant_dimension_gets_a_floor_which_the_checkpoint_keeps(tmp_path):
    dataset = write_trembling(tmp_path / "trembling")
    cfg = tiny_run_cfg(dataset, max_steps=10)
    with pytest.warns(UserWarning, match=r"observation\.state\.slide has a standard deviation of"):
        runner = train(cfg, tmp_path / "run")
    saved = checkpoint.latest(tmp_path / "run")
    policy = checkpoint.load_policy(saved)
    beside = policy.normalize_state.apply(np.array([[0.0, 0.301]]))[0, 1]
    assert beside == pytest.approx(0.001 / 0.0003, rel=0.01)
    stats = checkpoint.load_norm_stats(saved)
    assert stats == runner.norm_stats
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        child = make_runner(cfg.replace(init_from=str(tmp_path / "run")), tmp_path / "child")
    assert child.norm_stats == stats


def test_a_checkpoint_from_before_floors_normalises_as_it_did(tmp_path):
    dataset = write_trembling(tmp_path / "trembling")
    off = FloorsCfg(relative=0, absolute=0)
    train(tiny_run_cfg(dataset, max_steps=10, floors=off), tmp_path / "old")
    old = checkpoint.load_norm_stats(checkpoint.latest(tmp_path / "old"))
    assert old[STATE]["std"][1] < 2e-8
    child = make_runner(tiny_run_cfg(dataset, init_from=str(tmp_path / "old")), tmp_path / "child")
    assert child.norm_stats == old
    assert child.policy.normalize_state.scale[1] == old[STATE]["std"][1]


def test_a_resumed_run_normalises_as_it_began(tmp_path):
    dataset = write_trembling(tmp_path / "trembling")
    train(tiny_run_cfg(dataset, max_steps=10), tmp_path / "run")
    began = checkpoint.load_norm_stats(checkpoint.latest(tmp_path / "run"))
    stats = json.loads((dataset / "norm_stats.json").read_text())
    stats[STATE]["std"][0] *= 2
    (dataset / "norm_stats.json").write_text(json.dumps(stats))
    resumed = make_runner(tiny_run_cfg(dataset, max_steps=20), tmp_path / "run")
    assert resumed.norm_stats == began
    assert resumed.policy.normalize_state.scale[0] == pytest.approx(began[STATE]["std"][0])


def test_fine_tuning_from_another_architecture_is_refused(dataset, tmp_path):
    train(tiny_run_cfg(dataset), tmp_path / "parent")
    policy = tiny_policy_cfg(head=DiscreteTokenHeadCfg())
    cfg = tiny_run_cfg(dataset, init_from=str(tmp_path / "parent"), policy=policy)
    with pytest.raises(ValueError, match=r"head.centers is not in the checkpoint"):
        make_runner(cfg, tmp_path / "child")
    family = VLMPolicyCfg(
        cameras=["front"], image_size=policy.image_size, state_dim=2, action_dim=2, chunk_length=2
    )
    with pytest.raises(ValueError, match=r"holds a CompactVLA.*is a VLMPolicy.* with Mock"):
        make_runner(cfg.replace(policy=family), tmp_path / "child")


def test_bf16_trains_in_half_precision_and_keeps_fp32_weights(dataset, tmp_path):
    cfg = tiny_run_cfg(dataset, max_steps=3)
    full = train(cfg, tmp_path / "fp32")
    half = train(cfg.replace(precision="bf16"), tmp_path / "bf16")
    weight, reference = half.policy.head.output.weight, full.policy.head.output.weight
    assert weight.dtype == torch.float32
    assert not torch.equal(weight, reference)
    assert torch.allclose(weight, reference, atol=0.02)


def test_imitation_learns_which_square_the_instruction_names(tmp_path):
    root = write_synthetic(tmp_path / "squares", num_episodes=160)
    cfg = tiny_run_cfg(
        root, max_steps=400, batch_size=64, validation_interval=400, save_interval=400
    )
    runner = train(cfg, tmp_path / "run")
    frames = runner.split.validation
    batch = frames.batch(np.arange(frames.num_frames))
    predicted = runner.deployed.sample(batch.observation, greedy=True).actions
    error = np.abs(predicted - batch.action)[~batch.is_pad].mean()
    mean_action = np.abs(batch.action - batch.action.mean((0, 1)))[~batch.is_pad].mean()
    assert error < 0.5 * mean_action
    swapped = {"red": "blue", "blue": "red"}
    batch.observation.instruction = [
        " ".join(swapped.get(word, word) for word in sentence.split())
        for sentence in batch.observation.instruction
    ]
    wrong = runner.deployed.sample(batch.observation, greedy=True).actions
    assert np.abs(wrong - batch.action)[~batch.is_pad].mean() > 1.5 * error


def test_a_checkpoint_knows_what_the_cameras_showed_if_there_were_ten_episodes(dataset, tmp_path):
    few = train(tiny_run_cfg(dataset, max_steps=1), tmp_path / "few")
    assert "observation.images.front" not in few.norm_stats
    many = write_synthetic(tmp_path / "many", num_episodes=16)
    cfg = tiny_run_cfg(many, max_steps=1)
    run = train(cfg, tmp_path / "run")
    kept = checkpoint.load_norm_stats(checkpoint.latest(tmp_path / "run"))
    seen = SeenImages.from_dict(kept["observation.images.front"])
    frames = open_dataset(many, 2).batch(np.arange(40)).observation.images["front"]
    assert not any(seen.is_unlike(image) for image in frames)
    assert all(seen.is_unlike(255 - image) for image in frames)
    # another run from it, on too little, does not take the parent's for its own
    child = train(cfg.replace(dataset=str(dataset), init_from=str(run.run_dir)), tmp_path / "child")
    assert "observation.images.front" not in child.norm_stats
