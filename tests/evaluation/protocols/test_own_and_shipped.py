"""Gates and protocols of a workspace, and those that rrf ships."""

from pathlib import Path

import pytest
import yaml

from rrf import workspace
from rrf.envs.gymnasium.configs import GymnasiumEnvCfg
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.gates.gate import load_gate, protocol_path
from rrf.evaluation.protocols.files import find_protocol, load_protocol
from rrf.lineage import Lineage

PENDULUM = workspace.shipped() / "configs/protocols/pendulum.yaml"


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A workspace without configs."""
    monkeypatch.setenv("RRF_HOME", str(tmp_path / "work"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "work"


def protocol(folder: Path, name: str, seed: int) -> Path:
    """A protocol for Pendulum-v1 with another seed than the one that rrf ships."""
    path = folder / f"protocols/{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = yaml.safe_load(PENDULUM.read_text()) | {"name": name, "seed": seed}
    path.write_text(yaml.safe_dump(data))
    return path


def gate(folder: Path) -> Path:
    """A gate that names the protocol pendulum."""
    path = folder / "gates/own.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{name: own, protocol: pendulum, overall_lower_bound: 0.1, looks: [50]}")
    return path


def test_a_gate_of_the_workspace_may_name_a_protocol_that_rrf_ships(home):
    own = gate(home / "configs")
    assert protocol_path(own, "pendulum") == PENDULUM
    assert load_gate("configs/gates/own.yaml").protocol.name == "pendulum"


def test_a_protocol_of_the_workspace_hides_the_one_of_a_gate_that_rrf_ships(home):
    own = protocol(home / "configs", "pendulum", seed=7)
    assert protocol_path("configs/gates/pendulum.yaml", "pendulum") == own
    assert load_gate("configs/gates/pendulum.yaml").protocol.seed == 7


def test_a_gate_elsewhere_has_its_protocol_beside_it(home, tmp_path):
    protocol(home / "configs", "pendulum", seed=7)
    beside = protocol(tmp_path / "elsewhere", "pendulum", seed=8)
    assert protocol_path(gate(tmp_path / "elsewhere"), "pendulum") == beside


@pytest.mark.parametrize(
    "text",
    ["[", "- a list", "env: {type: nowhere:Nothing}", "episodes_per_task: many", b"# caf\xe9"],
    ids=["no-yaml", "list", "unknown-type", "wrong-field", "no-utf8"],
)
def test_a_protocol_that_cannot_be_read_is_left_out_and_named(home, caplog, text):
    env = GymnasiumEnvCfg(task="Pendulum-v1")
    policy = Candidate(Path("run"), "run", "control", "12", {"env": env.to_dict()}, Lineage())
    own = protocol(home / "configs", "mine", seed=7)
    broken = own.with_name("broken.yaml")
    broken.write_bytes(text.encode() if isinstance(text, str) else text)
    assert find_protocol(policy) == own
    assert "left out, because it cannot be read" in caplog.text
    assert str(broken) in caplog.text
    with pytest.raises(ValueError, match=r"broken\.yaml"):
        load_protocol(broken)


def test_a_protocol_of_the_workspace_is_chosen_before_one_that_rrf_ships(home):
    env = GymnasiumEnvCfg(task="Pendulum-v1")
    policy = Candidate(Path("run"), "run", "control", "12", {"env": env.to_dict()}, Lineage())
    assert find_protocol(policy) == PENDULUM
    own = protocol(home / "configs", "mine", seed=7)
    assert find_protocol(policy) == own
    protocol(home / "configs", "another", seed=8)
    with pytest.raises(ValueError, match="several protocols are for Pendulum-v1: another, mine"):
        find_protocol(policy)
