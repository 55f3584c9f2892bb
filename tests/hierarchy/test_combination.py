"""Three systems as one artifact, each as one of its own."""

import numpy as np
import pytest
from typer.testing import CliRunner

from rrf import atomic
from rrf.cli import app
from rrf.envs.humanoid.configs import HumanoidCfg
from rrf.envs.vec_env import InitialState
from rrf.evaluation.protocols.files import load_protocol
from rrf.hierarchy import combination
from rrf.networks import tensor_files
from rrf.runners.checkpoints import checkpoint, parts
from rrf.runners.checkpoints.control import load_control_policy
from rrf.runners.checkpoints.deployable import copy_deployable, deployable_digest, load_lineage
from tests.hierarchy.conftest import written
from tests.policies.vla.test_psi0 import acted, observation
from tests.repository.structure import ROOT


@pytest.fixture(scope="module")
def combined(upper, system0, tmp_path_factory):
    return combination.combine(upper, system0, tmp_path_factory.mktemp("all") / "combined")


def test_a_combination_holds_all_three_and_does_what_they_did(combined, upper, system0, tmp_path):
    one, other = map(checkpoint.load_policy, (upper, combined))
    assert np.array_equal(acted(one, observation()), acted(other, observation()))
    below = combination.system0_of(combined)
    assert deployable_digest(below) == deployable_digest(system0)
    load_control_policy(below)
    lineage = load_lineage(combined)
    assert lineage.parent_checkpoint == deployable_digest(upper)
    assert lineage.system0_checkpoint == deployable_digest(system0)
    both = map(deployable_digest, parts.split(upper, tmp_path / "parts"))
    assert (lineage.system2_checkpoint, lineage.system1_checkpoint) == tuple(both)


@pytest.fixture
def another(system0, tmp_path):
    """A System 0 of other weights, with a file that the first one does not have."""
    copy_deployable(system0, changed := tmp_path / "changed")
    weights = checkpoint.read_weights(changed)
    weights["actor.log_std"] += 0.1
    tensor_files.write(changed / checkpoint.WEIGHTS, weights)
    (changed / "notes.txt").write_text("more")
    facts = {k: v for k, v in atomic.read_manifest(changed).items() if k != "files"}
    atomic.write_manifest(changed, **facts)
    return changed


def test_another_system_0_is_another_combination(combined, upper, system0, another, tmp_path):
    other = combination.combine(upper, another, tmp_path / "other")
    assert deployable_digest(other) != deployable_digest(combined)
    replaced = combination.combine(combined, another, tmp_path / "replaced")
    assert deployable_digest(replaced) == deployable_digest(other)
    assert load_lineage(replaced) == load_lineage(other)
    back = combination.combine(replaced, system0, tmp_path / "back")
    assert deployable_digest(back) == deployable_digest(combined)


def test_a_changed_system_0_is_noticed(combined, tmp_path):
    copy_deployable(combined, tmp_path / "copy")
    file = tmp_path / "copy/system0/config.yaml"
    file.write_text(file.read_text() + "\n")
    with pytest.raises(ValueError, match="system0/config"):
        deployable_digest(tmp_path / "copy")


def test_the_command_joins_three_parts_and_two(upper, system0, tmp_path):
    system2, system1 = parts.split(upper, tmp_path / "parts")
    run = CliRunner()
    words = ["models", "join", str(system2), str(system1), "--system0", str(system0)]
    done = run.invoke(app, [*words, "--out", str(tmp_path / "three")], catch_exceptions=False)
    assert done.exit_code == 0
    lineage = load_lineage(tmp_path / "three")
    assert lineage.system0_checkpoint == deployable_digest(system0)
    words = [
        "models",
        "join",
        str(upper),
        "--system0",
        str(system0),
        "--out",
        str(tmp_path / "two"),
    ]
    assert run.invoke(app, words, catch_exceptions=False).exit_code == 0
    one, other = (checkpoint.load_policy(tmp_path / name) for name in ("two", "three"))
    assert np.array_equal(acted(one, observation()), acted(other, observation()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action_units": ["rad", "rad", "km/h", "rad/s"]}, r"vx \(km/h.*the units differ"),
        ({"action_names": ["left_elbow_joint", "right_elbow_joint", "vx", "jump"]}, "sends jump"),
    ],
)
def test_what_does_not_fit_is_not_combined(system0, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        combination.combine(written(tmp_path, **changes), system0, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_policy_without_two_parts_or_without_a_system_0_is_refused(upper, system0, tmp_path):
    with pytest.raises(ValueError, match="has no System 0; combine it with one"):
        combination.system0_of(upper)
    system2, _ = parts.split(upper, tmp_path / "parts")
    with pytest.raises(ValueError, match="is a policy that sees images, no System 0; train one"):
        combination.combine(upper, upper, tmp_path / "out")
    with pytest.raises(ValueError, match="System 2 alone"):
        combination.combine(system2, system0, tmp_path / "out")


def test_a_protocol_plays_a_combination_with_its_own_system_0(
    combined, upper, tmp_path, monkeypatch
):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    protocol = load_protocol(ROOT / "configs/protocols/g1-table.yaml").build()
    env = protocol.environment(0, combined, cameras=[])
    assert env.cfg.system0 == str(combined / "system0")
    state = InitialState("walk-to-table", 4242, 0)
    env.reset([state], [0])
    step = env.step(np.zeros((1, 5, 36), np.float32), [0])
    assert np.isfinite(step.observation.state).all()
    env.close()
    env = protocol.environment(0, upper, cameras=[])
    assert env.cfg.system0_folder() == ROOT / HumanoidCfg.system0
    env.close()


def test_the_system_0_of_a_combination_is_no_version_of_the_protocol(
    combined, upper, tmp_path, monkeypatch
):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    protocol = load_protocol(ROOT / "configs/protocols/g1-table.yaml")
    here = protocol.here(combined)
    assert set(here.versions) == {"mujoco", "mjlab", "mujoco-warp"}
    assert here.here(combined) == here
    shipped = protocol.here(upper).versions["system0"]
    own = tmp_path / HumanoidCfg.system0
    own.parent.mkdir(parents=True)
    own.symlink_to(combined / "system0")
    shared = protocol.here(upper).versions["system0"]
    assert shared != shipped
    pinned = protocol.replace(simulator_versions={"system0": shared})
    assert pinned.here(combined).versions["system0"] == shared
    with pytest.raises(ValueError, match=r"is for system0 another, but .* runs with system0"):
        protocol.replace(simulator_versions={"system0": "another"}).here(combined)
