"""`rrf eval` and `rrf play` with the real simulator and a real, untrained policy."""

import json
from importlib.metadata import version

import pytest
import typer.testing

from rrf import code_digest

PROTOCOL = """
name: two
tasks: [drawer-open-v3, button-press-topdown-v3]
seed: 4242
episodes_per_task: 2
max_episode_steps: 6
execute_steps: 2
num_slots: 3
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A workspace with an untrained checkpoint."""
    import torch

    from rrf.lineage import DatasetLineage, Lineage
    from rrf.presets import resolve
    from rrf.runners.checkpoints.checkpoint import TrainerState, save

    home = tmp_path_factory.mktemp("home")
    (home / "two.yaml").write_text(PROTOCOL)
    torch.manual_seed(0)
    cfg = resolve("compact-vla-pretrain")
    names = ("mean", "std", "min", "max", "q01", "q99")
    stats = {
        key: {n: [0.0 if n == "mean" else -1.0 if n in ("min", "q01") else 1.0] * 4 for n in names}
        | {"count": [10]}
        for key in ("observation.state", "action")
    }
    trainer = TrainerState({"x": torch.zeros(1)}, {"step": 1})
    weights = cfg.policy.build(stats).state_dict()
    save(home / "run", 1, cfg, weights, stats, trainer, Lineage((DatasetLineage("demo"),)))
    return home


@pytest.fixture
def rrf(home, monkeypatch):
    """Run a command of `rrf`; its output. Its errors are raised."""
    monkeypatch.setenv("RRF_HOME", str(home))
    from rrf.cli.evaluation import eval_
    from rrf.cli.playing import play

    app = typer.Typer()
    app.command("eval")(eval_)
    app.command("play")(play)

    def run(*words) -> str:
        words = [str(word) for word in words]
        result = typer.testing.CliRunner().invoke(app, words, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


def evaluation(folder) -> dict:
    return json.loads((folder / "evaluation.json").read_text())


@pytest.mark.slow
def test_an_evaluation_is_written_reused_and_extended(home, rrf):
    base = ("eval", home / "run", "--protocol", home / "two.yaml", "--workers", 0)
    output = rrf(*base, "--num-videos", 2, "--out", home / "a/0")
    assert "episode 4/4" in output
    first = evaluation(home / "a/0")
    assert {e["steps"] for e in first["episodes"]} == {6}
    assert len(list((home / "a/0/videos").glob("*.mp4"))) == 2
    assert "data:video/mp4" in (home / "a/0/report.html").read_text()
    (home / "a/0/report.html").write_text("with a verdict and curves by now")
    assert "reused" in rrf(*base, "--out", home / "a/0")
    assert (home / "a/0/report.html").read_text() == "with a verdict and curves by now"

    longer = rrf(*base, "--num-videos", 0, "--extra-episodes", 1, "--out", home / "a/1")
    assert "episode 6/6" in longer
    assert "episode 4/6" not in longer  # known from before
    assert evaluation(home / "a/1")["episodes"][0] == first["episodes"][0]
    again = rrf(*base, "--num-videos", 0, "--out", home / "a/2")
    assert "no episode was played: all were known" in again
    assert "episodes/s" in longer
    assert "episodes/s" not in again


@pytest.mark.slow
def test_evaluations_of_another_version_are_named_and_left_out(home, rrf, monkeypatch):

    counted = []
    digest = code_digest.source_digest
    monkeypatch.setattr(code_digest, "source_digest", lambda: counted.append(1) or digest())
    words = ("eval", home / "run", "--protocol", home / "two.yaml", "--num-videos", 0)
    words += ("--workers", 0)
    rrf(*words, "--out", home / "g/0")
    assert len(counted) == 1
    whole = (home / "g/0/evaluation.json").read_text()
    for number, text in enumerate(
        (
            json.dumps(json.loads(whole) | {"format_version": 3}),
            json.dumps({k: v for k, v in json.loads(whole).items() if k != "source_digest"}),
            whole[: len(whole) // 2],
            whole.replace('"greedy"', '"greediness"'),
        ),
        start=1,
    ):
        (home / f"g/{number}").mkdir()
        (home / f"g/{number}/evaluation.json").write_text(text)
    with pytest.raises(ValueError, match=r"evaluation\.json was written by a newer rrf"):
        rrf(*words, "--extra-episodes", 1, "--out", home / "g/1")
    output = rrf(*words, "--extra-episodes", 1, "--out", home / "g/2")
    notes = [line for line in output.splitlines() if line.startswith("not reusing")]
    assert len(notes) == 4
    assert f"{home / 'g/1'}/evaluation.json: " in notes[0]
    assert "evaluation.json was written by a newer rrf" in notes[0]
    assert "damaged: KeyError 'source_digest'" in notes[1]
    assert "not JSON" in notes[2]
    assert "greediness" in notes[3]
    assert "episode 6/6" in output
    assert "episode 4/6" not in output  # those of g/0 are still reused
    assert evaluation(home / "g/1")["format_version"] == 3
    assert len(evaluation(home / "g/2")["episodes"]) == 6  # the unreadable one was replaced


@pytest.mark.slow
def test_worker_count_and_slots_do_not_change_an_evaluation(home, rrf):
    base = ("eval", home / "run", "--protocol", home / "two.yaml", "--num-videos", 0)
    rrf(*base, "--workers", 0, "--out", home / "d/0")
    rrf(*base, "--workers", 2, "--slots", 2, "--out", home / "e/2")
    alone, spread = evaluation(home / "d/0"), evaluation(home / "e/2")
    assert alone["episodes"] == spread["episodes"]
    assert alone["protocol_hash"] == spread["protocol_hash"]
    versions = alone["protocol"]["simulator_versions"]
    assert versions == {name: version(name) for name in ("metaworld", "mujoco", "mujoco-warp")}
    assert versions.items() <= alone["surroundings"].items()


@pytest.mark.slow
def test_baselines_are_evaluated_beside_the_policy(home, rrf):
    words = ("eval", home / "run", "--protocol", home / "two.yaml", "--num-videos", 0)
    output = rrf(*words, "--workers", 0, "--out", home / "c/0", "--baselines")
    assert "mean-action: success 0.000" in output
    assert "random: success 0.000" in output
    assert "mean action" in (home / "c/0/report.html").read_text()


@pytest.mark.slow
def test_playing_writes_a_video_larger_than_what_the_policy_sees(home, rrf):
    import av

    out = home / "episode.mp4"
    words = ("--task", "drawer-open-v3", "--index", 3, "--max-episode-steps", 6, "--size", 128)
    assert "not solved after 6 steps" in rrf("play", home / "run", *words, "--out", out)
    with av.open(str(out)) as container:
        stream = container.streams.video[0]
        assert stream.width == 128
        assert len(list(container.decode(video=0))) == 7 + 16  # the last one is held for a second


def test_options_of_state_based_policies_are_refused(home, rrf):
    words = ("play", home / "run", "--task", "drawer-open-v3", "--video", "x.mp4")
    with pytest.raises(
        ValueError, match=r"--num-envs, --viewer: run.* is a policy that sees images, .*--task,"
    ):
        rrf(*words, "--num-envs", 2, "--viewer")


def test_a_protocol_that_shows_other_cameras_is_refused(home, rrf):
    (home / "views.yaml").write_text(f"{PROTOCOL}cameras: [workspace, gripperPOV]\n")
    message = (
        "the policy sees through corner2, but protocol 'two' shows workspace, gripperPOV; evaluate "
        r"it by a protocol with cameras: \[corner2\]"
    )
    with pytest.raises(ValueError, match=message):
        rrf("eval", home / "run", "--protocol", home / "views.yaml", "--workers", 0)


def test_unknown_tasks_and_checkpoints_are_refused(home, rrf):
    with pytest.raises(ValueError, match="drawer-open-v3"):
        rrf("play", home / "run", "--task", "drawer-opne-v3")
    with pytest.raises(ValueError, match="neither a checkpoint"):
        rrf("eval", home / "nothing")
    with pytest.raises(ValueError, match="one seed has"):
        rrf("play", home / "run", "--task", "drawer-open-v3", "--index", 50)
