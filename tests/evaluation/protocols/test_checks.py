"""`rrf envs check`: a simulator is the same twice, and as at the last check, or it is said."""

import json
import typing

import gymnasium
import numpy as np
import pytest
import typer.testing
import yaml

from rrf.cli import app
from rrf.evaluation.protocols import checks


class Restless(gymnasium.Env):
    """Its observations do not come from its seed."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        return np.random.default_rng().uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        return self.reset()[0], 0.0, False, False, {}


class Broken(Restless):
    def step(self, action):
        raise RuntimeError("out of order")


class Counted(Restless):
    """Its observations come from its seed. It remembers the seeds of all episodes."""

    seeds: typing.ClassVar[list[int]] = []

    def reset(self, seed=None, options=None):
        super(Restless, self).reset(seed=seed)
        if seed is not None:
            self.seeds.append(seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    (tmp_path / "configs/protocols").mkdir(parents=True)
    return tmp_path


def write(home, name, task, **changes):
    """A protocol of a Gymnasium task."""
    env = {"type": "rrf.envs.gymnasium.configs:GymnasiumEnvCfg", "task": task, "num_envs": 2}
    data = {
        "name": name,
        "env": env,
        "seed": 4242,
        "episodes_per_task": 2,
        "max_episode_steps": 9,
        "success": {"return": {"min": 1}},
    }
    path = home / f"configs/protocols/{name}.yaml"
    path.write_text(yaml.safe_dump(data | changes))
    return path


def test_what_is_seen_is_compared_with_the_last_check(home):
    path = write(home, "balance", "CartPole-v1")
    first, second = checks.check(path), checks.check(path)
    assert (first.simulator, first.state, first.said) == ("gymnasium", "ok", "the same twice")
    assert (second.state, second.said) == ("ok", "as at the last check")
    note = home / ".rrf/checks/balance.json"
    seen = json.loads(note.read_text())
    note.write_text(json.dumps(seen | {"digest": "0" * 64, "versions": {"mujoco": "3.3.2"}}))
    for _ in range(2):
        other = checks.check(path)
        assert other.state == checks.FAILED
        assert "with mujoco 3.3.2; now" in other.said
        assert other.said.endswith("type: rrf envs check gymnasium --accept")
    assert checks.check(path, accept=True).state == checks.OK
    assert json.loads(note.read_text()) == seen
    write(home, "balance", "CartPole-v1", seed=4243)  # another protocol, nothing to compare with
    assert checks.check(path).said == "the same twice"
    note.write_text("{}")  # damaged
    assert checks.check(path).said == "the same twice"


def test_a_simulator_that_is_as_at_the_last_check_is_started_once(home):
    gymnasium.register("Counted-v0", entry_point=Counted, max_episode_steps=9)
    path, note = write(home, "counted", "Counted-v0"), home / ".rrf/checks/counted.json"

    def starts(accept=False):
        Counted.seeds.clear()
        said = checks.check(path, accept).said
        return len(Counted.seeds) / len(set(Counted.seeds)), said

    try:
        assert starts() == (2, "the same twice")
        assert starts() == (1, "as at the last check")
        assert starts(accept=True) == (2, "the same twice")
        seen = json.loads(note.read_text())
        note.write_text(json.dumps(seen | {"digest": "0" * 64}))
        number, said = starts()
        assert number == 2
        assert said.startswith("other pictures or states than at the check of ")
    finally:
        gymnasium.registry.pop("Counted-v0")


def test_a_simulator_that_differs_or_fails_does_not_end_the_checks(home):
    gymnasium.register("Restless-v0", entry_point=Restless, max_episode_steps=9)
    gymnasium.register("OutOfOrder-v0", entry_point=Broken, max_episode_steps=9)
    try:
        restless = checks.check(write(home, "restless", "Restless-v0"))
        broken = checks.check(write(home, "broken", "OutOfOrder-v0"))
    finally:
        for name in ("Restless-v0", "OutOfOrder-v0"):
            gymnasium.registry.pop(name)
    assert restless.state == broken.state == checks.FAILED
    assert "seen otherwise the second time" in restless.said
    assert "out of order" in broken.said
    assert not (home / ".rrf/checks").exists()


def test_the_command_checks_those_named_and_says_which_are_not_set_up(home):
    write(home, "balance", "CartPole-v1")
    (home / "configs/protocols/nothing.yaml").write_text("name: [")
    run = typer.testing.CliRunner().invoke
    done = run(app, ["envs", "check", "two_goals"], catch_exceptions=False)
    assert done.output.startswith("[1/1] two-goals ... ok: the same twice (two_goals, ")
    with pytest.raises(ValueError, match="2 of 2 checks failed: robosuite-demo, robosuite-robust"):
        run(app, ["envs", "check", "robosuite"], catch_exceptions=False)
    with pytest.raises(ValueError, match="no protocol is for 'liberro'; did you mean 'libero'"):
        run(app, ["envs", "check", "liberro"], catch_exceptions=False)
    assert {"calvin", "isaaclab", "libero", "metaworld", "mjlab"} <= checks.simulators().keys()
    names = [path.stem for path in checks.protocols_of(["gymnasium"])]
    assert {"balance", "cartpole"} <= set(names)
    robosuite = checks.check(checks.protocols_of(["robosuite"])[0])
    assert robosuite.state == checks.ABSENT
    assert robosuite.said.endswith("type: rrf envs setup robosuite")
