"""DAgger on the toy simulator, in worker processes: what is recorded, what is learned, what an
interruption leaves.
"""

import signal
from pathlib import Path

import numpy as np
import pytest

from rrf.config import trust
from rrf.data.dataset.opening import open_dataset
from rrf.envs import ENVS
from rrf.lineage import DatasetLineage, Lineage
from rrf.orchestra.recording_role import RecordingRole
from rrf.presets import PRESETS
from rrf.runners.checkpoints.deployable import load_lineage
from rrf.runners.dagger.recording import initial_states
from rrf.runners.interruption import Interrupted, SignalWatch

with pytest.MonkeyPatch.context() as patch:
    for registry in (ENVS, PRESETS):  # other tests look at all there are
        patch.setattr(registry, "_targets", dict(registry._targets))
    from tests.toy_simulator import presets
    from tests.toy_simulator.configs import INSTRUCTIONS, ToyCfg
    from tests.toy_simulator.demonstrations import demonstrate
    from tests.toy_simulator.env import SPEED, episode_of, expert

TASKS = list(INSTRUCTIONS)


@pytest.fixture(scope="module", autouse=True)
def trusted():
    """Configs may name the toy simulator."""
    trust("tests")


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory) -> Path:
    """A dataset with four demonstrations per task."""
    root = tmp_path_factory.mktemp("data") / "toy"
    demonstrate(root, episodes_per_task=4)
    return root


@pytest.fixture(scope="module")
def cloned(demonstrations, tmp_path_factory) -> str:
    """The checkpoint of a policy that imitated them."""
    cfg = presets.sft().replace(dataset=str(demonstrations), max_steps=150)
    return cfg.build(tmp_path_factory.mktemp("sft")).run()["checkpoint"]


@pytest.fixture(scope="module")
def cfg(demonstrations, cloned):
    """A run of two rounds."""
    return presets.dagger().replace(
        dataset=str(demonstrations), init_from=cloned, num_workers=1, max_steps=100
    )


@pytest.fixture(scope="module")
def finished(cfg, tmp_path_factory):
    """The directory of a finished run, and its result."""
    run_dir = tmp_path_factory.mktemp("dagger")
    return run_dir, cfg.build(run_dir, Lineage((DatasetLineage("toy"),))).run()


@pytest.fixture(scope="module")
def short(cfg):
    """A run of one round that takes a few seconds."""
    return cfg.replace(
        max_rounds=1, max_steps=12, episodes_per_task=2, validation_episodes=2, log_interval=1
    )


@pytest.mark.slow
def test_it_solves_what_cloning_drifts_away_from(finished, cfg, cloned, tmp_path):
    _, result = finished
    steps = cfg.max_rounds * cfg.max_steps
    longer = presets.sft().replace(dataset=cfg.dataset, init_from=cloned, max_steps=steps)
    clone = longer.build(tmp_path / "longer").run()["checkpoint"]
    judge = cfg.replace(init_from=clone).build(tmp_path / "judge")
    judge._validate(Path(clone))
    success = {entry["round"]: entry["success"] for entry in result["validations"]}
    assert judge.validations[0]["success"] < 0.5
    assert success[2] > judge.validations[0]["success"] + 0.2
    assert result["checkpoint"].endswith("global_step_2")


@pytest.mark.slow
def test_every_visited_state_has_the_experts_answer(finished, cfg):
    run_dir, result = finished
    reader = open_dataset(run_dir / "round_1/data", chunk_length=2)
    states = initial_states(cfg, 1)
    assert [state.index for state in states] == [*range(10, 20)] * 2  # round 0 had the first ten
    assert reader.num_episodes == len(states) == result["recorded"][1]["episodes"]
    was_policy = False
    for number, state in enumerate(states):
        recorded, episode = reader.episode(number), episode_of(state)
        np.testing.assert_array_equal(recorded.state[0], episode.dot)
        for frame, dot in enumerate(recorded.state):
            episode.dot = dot
            np.testing.assert_allclose(recorded.action[frame], expert(episode), atol=1e-5)
        moved = recorded.state[:-1] + SPEED * recorded.action[:-1]
        was_policy |= not np.allclose(moved, recorded.state[1:], atol=1e-3)
    assert was_policy  # the labels are not what was executed


def test_failures_are_recorded_too(finished):
    run_dir, result = finished
    for number, facts in enumerate(result["recorded"]):
        reader = open_dataset(run_dir / f"round_{number}/data", chunk_length=2)
        ended = [reader.episode(n).success for n in range(reader.num_episodes)]
        assert (
            np.mean([success is not None and success[-1] for success in ended])
            == facts["success"]
            < 1
        )


def test_the_lineage_names_datasets_and_recorded_rounds(finished):
    run_dir, result = finished
    lineage = load_lineage(result["checkpoint"])
    assert lineage.dataset_names == ["toy"]
    assert len(lineage.parent_checkpoint) == 64
    assert [one["beta"] for one in lineage.recorded] == [0.5, 0.25]
    assert len({one["digest"] for one in lineage.recorded}) == 2
    assert not list(run_dir.glob("round_*/training"))  # optimizer states of finished rounds


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_ends_the_same(short, tmp_path):
    undisturbed = short.build(tmp_path / "undisturbed").run()
    for stage, done in (("record", 2), ("train", 5), ("validate", 0)):
        with pytest.raises(Interrupted, match="SIGTERM"):
            _stopped(short, tmp_path / "run", stage, done)
    with pytest.raises(RuntimeError, match="killed"):
        _stopped(short, tmp_path / "run", "validate", 4, RuntimeError("killed"))
    result = short.build(tmp_path / "run").run()
    assert result["checkpoint_digest"] == undisturbed["checkpoint_digest"]
    assert result["recorded"] == undisturbed["recorded"]


def _stopped(cfg, run_dir, stage: str, done: int, error: Exception | None = None) -> None:
    """Run until a stage of the first round has done so much; then raise, or send a signal."""
    signals = SignalWatch()

    def on_progress(at) -> None:
        if (at.round, at.stage) == (1, stage) and at.done >= done:
            if error:
                raise error
            signals.received = signal.SIGTERM

    cfg.build(run_dir).run(None, on_progress, signals)


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(short, tmp_path):
    one = short.build(tmp_path / "one").run()
    two = short.replace(num_workers=2).build(tmp_path / "two").run()
    assert one["recorded"] == two["recorded"]


def test_a_run_with_other_settings_is_not_continued(finished, cfg):
    run_dir, _ = finished
    with pytest.raises(ValueError, match="beta0 differ"):
        cfg.replace(beta0=0.9).build(run_dir).run()


@pytest.mark.parametrize(("beta", "share"), [(0.0, 0), (1.0, 1)])
def test_beta_is_the_experts_share(beta, share):
    role = RecordingRole(ToyCfg(num_envs=1, max_episode_steps=8).to_dict(), False, beta, [0, 0])
    role.start([(0, "reach-red", 42, 0)])
    while True:
        (result,) = role.advance([], np.full((1, 2, 2), -1, np.float32))["results"]
        if result["is_over"]:
            break
    recording = result["recording"]
    assert recording["num_expert_steps"] == share * len(recording["action"])
    assert result["success"] == bool(share)


def test_what_cannot_be_run_is_refused(cfg, tmp_path):
    class NoExpertCfg(ToyCfg):
        has_expert = False

    for changes, message in (
        ({"init_from": None}, "init_from is not given, but DAgger starts from a policy"),
        ({"tasks": ["reach-rde"]}, "did you mean 'reach-red'"),
        ({"env": ToyCfg(chunk_length=4)}, "env.chunk_length is 4, but the policy predicts 2"),
        ({"env": ToyCfg(num_envs=5), "num_workers": 2}, "num_envs=5 cannot be divided evenly"),
        ({"env": NoExpertCfg()}, "toy has no scripted expert"),
    ):
        with pytest.raises(ValueError, match=message):
            cfg.replace(**changes).build(tmp_path)
    for field, value in (("beta0", 1.5), ("max_rounds", 0), ("validation_seed", 42)):
        with pytest.raises(ValueError, match=field):
            cfg.replace(**{field: value})
    with pytest.raises(ValueError, match="episodes_per_task is 1001, but there are only 1000"):
        cfg.replace(episodes_per_task=1001)
