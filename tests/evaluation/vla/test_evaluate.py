"""The evaluation loop on a small real environment: refilling, determinism, resuming, videos."""

import dataclasses

import numpy as np
import pytest

from rrf.envs.vec_env import Step
from rrf.evaluation.gates.decision import decide
from rrf.evaluation.gates.gate import GateCfg
from rrf.evaluation.protocols.limits import MeanLimitCfg
from rrf.evaluation.reports.videos import choose_for_video
from rrf.evaluation.results import EpisodeResult, Evaluation
from rrf.evaluation.vla.baselines import MeanActionPolicy, RandomPolicy
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.evaluation.vla.evaluate import evaluate
from rrf.evaluation.vla.play import replay
from tests.evaluation.vla.point_mass import GoTowards, PointMassVecEnv

PROTOCOL = ProtocolCfg(
    name="point-mass",
    env="point",
    tasks=["reach", "far"],
    seed=4242,
    episodes_per_task=5,
    max_episode_steps=12,
)


class TwoWorkers:
    """Two environments behind one, slots dealt out alternately, the second worker answering
    first.
    """

    def __init__(self, num_envs: int):
        self.parts = [PointMassVecEnv((num_envs + 1) // 2), PointMassVecEnv(num_envs // 2)]
        self.num_envs, first = num_envs, self.parts[0]
        self.chunk_length, self.action_dim = first.chunk_length, first.action_dim
        self.max_episode_steps, self.fps = first.max_episode_steps, first.fps

    def reset(self, initial_states, env_ids):
        return self._gather(
            env_ids, lambda part, rows, slots: part.reset([initial_states[r] for r in rows], slots)
        )

    def step(self, actions, env_ids):
        found = {}

        def run(part, rows, slots):
            step = part.step(actions[rows], slots)
            for name in ("reward", "terminated", "truncated", "success", "steps"):
                values = getattr(step, name)
                found.setdefault(name, np.zeros(len(env_ids), values.dtype))[rows] = values
            return step.observation

        observation = self._gather(env_ids, run)
        return Step(observation=observation, extras={}, **found)

    def _gather(self, env_ids, run):
        rows_of = {k: [r for r, e in enumerate(env_ids) if e % 2 == k] for k in (1, 0)}
        parts = {
            k: run(self.parts[k], rows, [env_ids[r] // 2 for r in rows])
            for k, rows in rows_of.items()
            if rows
        }
        where = {r: (k, i) for k, rows in rows_of.items() for i, r in enumerate(rows)}
        ordered = [where[r] for r in range(len(env_ids))]
        first = next(iter(parts.values()))
        return dataclasses.replace(
            first,
            images={n: np.stack([parts[k].images[n][i] for k, i in ordered]) for n in first.images},
            state=np.stack([parts[k].state[i] for k, i in ordered]),
            instruction=[parts[k].instruction[i] for k, i in ordered],
        )


def test_every_initial_state_is_run_once_and_judged():
    seen = []
    report = evaluate(
        GoTowards(), PointMassVecEnv(3), PROTOCOL, lambda e, done, total: seen.append((done, total))
    )
    assert [e.initial_state for e in report.episodes] == PROTOCOL.initial_states()
    assert seen == [(n, 10) for n in range(1, 11)]
    # 0.6 away, 0.1 a step, solved below 0.15: five steps leave 0.1; the far goal stays out of reach
    # for 12 steps
    assert [(e.success, e.steps) for e in report.episodes] == [(True, 5)] * 5 + [(False, 12)] * 5
    # distances left after each step: .5 + .4 + .3 + .2 + .1
    assert report.episodes[0].episode_return == pytest.approx(-1.5, abs=1e-5)
    assert str(report.overall).startswith("0.500 [0.237, 0.763] (5/10)")


class Trembles(GoTowards):
    """Moves to and fro, and never anywhere."""

    def sample(self, observation, generator=None, greedy=False):
        sample = super().sample(observation, generator, greedy)
        to_and_fro = np.array([[0.5, 0], [-0.5, 0]] * 2, np.float32)
        return dataclasses.replace(sample, actions=np.broadcast_to(to_and_fro, (8, 4, 2)).copy())


def test_the_smoothness_of_what_was_executed_is_measured_if_the_protocol_asks():
    protocol = PROTOCOL.replace(action_metrics=True)
    report = evaluate(Trembles(), PointMassVecEnv(3), protocol)
    # 12 steps; the first number changes by 1 in each, the second rests. Its spectrum is one line,
    # the last of 6, at half of the sampling rate: M = 2 / 12 * 12 * .5, Sm = 2 / 6 * M * .5 = 1 / 6
    for episode in report.episodes:
        assert episode.steps == 12
        assert episode.metrics == {"smoothness": 0.083333, "action_change": 0.5}
    straight = evaluate(GoTowards(), PointMassVecEnv(3), protocol)
    assert straight.mean_metrics()["action_change"] < 1e-6
    assert straight.overall.successes == 5
    assert evaluate(Trembles(), PointMassVecEnv(3), PROTOCOL).episodes[0].metrics == {}


def test_a_gate_limits_smoothness_only_of_protocols_that_measure_it():
    rules = {"name": "g", "overall_lower_bound": 0.0, "looks": [5]}
    limits = {"action_change": MeanLimitCfg(max=0.4)}
    measuring = PROTOCOL.replace(action_metrics=True)
    gate = GateCfg(protocol=measuring, limits=limits, **rules)
    verdict = decide(evaluate(Trembles(), PointMassVecEnv(3), measuring), gate)
    assert verdict.reasons[0] == (
        "fail: action_change: mean 0.5 over 10 episodes, asked is at most 0.4"
    )
    assert decide(evaluate(GoTowards(), PointMassVecEnv(3), measuring), gate).outcome == "pass"
    with pytest.raises(ValueError, match="measures only success; remove limits, or measure"):
        GateCfg(protocol=PROTOCOL, limits=limits, **rules)


def test_finished_episodes_leave_the_batch_and_their_slots_are_refilled():
    policy, env = GoTowards(), PointMassVecEnv(4)
    evaluate(policy, env, PROTOCOL)
    # chunks of two steps: five episodes of three chunks, five of six
    assert env.num_steps == 5 * 3 + 5 * 6
    assert policy.batch_sizes == [8] * 15  # one padded call per step of the longest slot


@pytest.mark.parametrize("greedy", [True, False])
def test_results_do_not_depend_on_how_many_run_side_by_side_or_in_which_worker(greedy):
    protocol = PROTOCOL.replace(greedy=greedy)
    reference = evaluate(GoTowards(noise=1.5), PointMassVecEnv(1), protocol)
    for env in (PointMassVecEnv(3), PointMassVecEnv(10), PointMassVecEnv(16), TwoWorkers(5)):
        report = evaluate(GoTowards(noise=1.5), env, protocol)  # type: ignore[arg-type]
        assert report.digest == reference.digest
        for mine, theirs in zip(report.episodes, reference.episodes, strict=True):
            np.testing.assert_array_equal(mine.actions, theirs.actions)


def test_sampling_depends_on_the_seed_of_the_protocol():
    noisy = PROTOCOL.replace(greedy=False)
    first = evaluate(GoTowards(noise=1.5), PointMassVecEnv(4), noisy)
    other = evaluate(GoTowards(noise=1.5), PointMassVecEnv(4), noisy.replace(policy_seed=1))
    returns = [[e.episode_return for e in report.episodes] for report in (first, other)]
    assert returns[0] != returns[1]


def test_episodes_known_from_before_an_extension_are_not_run_again():
    short = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL)
    env = PointMassVecEnv(4)
    long = evaluate(GoTowards(), env, PROTOCOL.extended(2), known=short.episodes)
    assert env.num_steps == 2 * 3 + 2 * 6
    assert long.digest == evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL.extended(2)).digest


def test_policy_environment_and_protocol_must_fit():
    with pytest.raises(ValueError, match="needs max_episode_steps 12, but the environment has 40"):
        evaluate(GoTowards(), PointMassVecEnv(2, max_episode_steps=40), PROTOCOL)
    with pytest.raises(ValueError, match="predicts 1 steps, but protocol 'point-mass' executes 2"):
        evaluate(RandomPolicy(1, 2), PointMassVecEnv(2), PROTOCOL)
    with pytest.raises(ValueError, match="3 action dimensions, but the environment has 2"):
        evaluate(RandomPolicy(2, 3), PointMassVecEnv(2), PROTOCOL)


def test_a_nan_action_stops_the_evaluation_with_its_place():
    policy = MeanActionPolicy(2, np.array([np.nan, 0.0]))
    with pytest.raises(ValueError, match="action of env 0, step 0, dimension 0 is nan"):
        evaluate(policy, PointMassVecEnv(2), PROTOCOL)


def test_policies_that_learned_nothing_solve_nothing_and_are_reproducible():
    mean = evaluate(MeanActionPolicy(2, np.zeros(2)), PointMassVecEnv(4), PROTOCOL)
    random = evaluate(RandomPolicy(2, 2, seed=3), PointMassVecEnv(4), PROTOCOL)
    again = evaluate(RandomPolicy(2, 2, seed=3), PointMassVecEnv(7), PROTOCOL)
    other = evaluate(RandomPolicy(2, 2, seed=4), PointMassVecEnv(4), PROTOCOL)
    assert mean.overall.successes == 0
    assert random.overall.successes <= 1
    assert random.digest == again.digest != other.digest


def test_the_report_survives_the_disk_and_notices_edits(tmp_path):
    report = evaluate(
        GoTowards(), PointMassVecEnv(4), PROTOCOL, checkpoint_digest="ab12", label="mine"
    )
    report.save(tmp_path / "evaluation.json")
    read = Evaluation.load(tmp_path)
    assert read == report
    assert read.digest == report.digest
    edited = (
        (tmp_path / "evaluation.json").read_text().replace('"success": false', '"success": true', 1)
    )
    (tmp_path / "evaluation.json").write_text(edited)
    with pytest.raises(ValueError, match=r"overall.successes is 5, but its episodes have 6"):
        Evaluation.load(tmp_path)


def test_reports_of_another_version_or_missing_ones_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="rrf eval CHECKPOINT"):
        Evaluation.load(tmp_path)
    (tmp_path / "evaluation.json").write_text('{"format_version": 3}')
    newer = r"evaluation\.json was written by a newer rrf \(evaluation of version 3, this rrf reads"
    with pytest.raises(ValueError, match=newer):
        Evaluation.load(tmp_path)
    (tmp_path / "evaluation.json").write_text("[]")
    with pytest.raises(ValueError, match=r"evaluation\.json holds a list, not an evaluation"):
        Evaluation.load(tmp_path)


def test_timings_count_the_episodes_run():
    report = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL)
    assert report.timings["episodes_per_s"] == pytest.approx(
        10 / report.timings["wall_s"], rel=0.05
    )
    assert 0 <= report.timings["cpu_s"] <= 4 * report.timings["wall_s"] + 0.05


def test_videos_show_a_success_and_a_failure_of_each_task_and_alternate_when_few_fit():
    report = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL)
    report.episodes[1].success, report.episodes[6].success = False, True
    chosen = choose_for_video(report.episodes, limit=4)
    assert [(e.task, e.index, e.success) for e in chosen] == [
        ("reach", 0, True),
        ("reach", 1, False),
        ("far", 0, False),
        ("far", 1, True),
    ]
    assert [(e.task, e.success) for e in choose_for_video(report.episodes, limit=2)] == [
        ("reach", True),
        ("far", False),
    ]


def test_replaying_actions_gives_every_frame_of_the_same_episode_at_another_size():
    report = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL)
    chosen = choose_for_video(report.episodes, limit=3)
    frames = replay(PointMassVecEnv(2, chunk_length=1, size=24), chosen, "top")
    assert [f.shape for f in frames] == [(e.steps + 1, 24, 24, 3) for e in chosen]
    assert frames[0].any(axis=(1, 2, 3)).all()


def test_a_replay_that_ends_otherwise_is_refused():
    report = evaluate(GoTowards(), PointMassVecEnv(4), PROTOCOL)
    episode = report.episodes[0]
    assert episode.actions is not None
    episode.actions = np.zeros_like(episode.actions)
    with pytest.raises(
        ValueError, match="initial state 0 did not replay as recorded: at step 5 of 5"
    ):
        replay(PointMassVecEnv(1, chunk_length=1), [episode], "top")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"success": 25}, "success is 25, not of type bool"),
        ({"success": 1}, "success is 1, not of type bool"),
        ({"steps": -1}, "steps is -1, allowed: 0 or more"),
        ({"seed": "1"}, "seed is '1', not of type int"),
        ({"return": float("nan")}, "return is nan, not a finite number"),
        ({"metrics": {"fall": float("inf")}}, "fall is inf, not a finite number"),
        ({"metrics": {"fall": True}}, "fall is True, not a finite number"),
    ],
)
def test_what_is_no_result_of_an_episode_is_refused(changes, message, tmp_path):
    good = Evaluation(
        {"name": "p"}, "h", "c", [EpisodeResult("a", 1, i, True, 3, 1.0) for i in (0, 1)], {}
    )
    data = good.to_dict()
    assert Evaluation.from_dict(data) == good
    data["episodes"][1] |= changes
    with pytest.raises(ValueError, match=f"evaluation.json: episode 1: {message}; evaluate again"):
        Evaluation.from_dict(data)
    (tmp_path / "evaluation.json").write_text("[" * 200_000)
    with pytest.raises(ValueError, match=r"evaluation.json is not JSON \(it is nested too deeply"):
        Evaluation.load(tmp_path)
