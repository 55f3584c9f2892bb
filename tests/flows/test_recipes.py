"""The parts of flows that need no server."""

import asyncio
import base64
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from inspect import signature
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console

from flows import (
    artifacts,
    commands,
    fitting,
    progress,
    train_locomotion,
    train_offline,
    train_vla,
    training,
)
from flows.gate import gate_for, protocol_file
from flows.ingest import dvc_words
from flows.train_vla import by_stage, datasets_behind
from flows.training import conclude
from infra import demo, services
from infra.display import Display
from rrf import prefect_plugin, processes
from rrf.config import locate
from rrf.envs.rendering.video import write_video
from rrf.evaluation.results import Evaluation
from rrf.lineage import DatasetLineage, Lineage
from rrf.mlflow_store import store
from rrf.registry import promotion
from rrf.registry.lineage_sources import collect_lineage, is_pushed
from rrf.run_directory import TrainingResult
from tests.registry.conftest import (
    empty_store,  # noqa: F401 (a fixture of `repository`)
    new_run,
    register,
)
from tests.registry.conftest import home as repository  # noqa: F401 (a fixture)


def test_overrides_go_to_the_stage_they_name():
    paths = {"sft.optimizer.lr": 1e-3, "pretrain.max_steps": 5, "sft.seed": 1, "rl.seed": 2}
    assert by_stage(paths) == {
        "pretrain": {"max_steps": 5},
        "rl": {"seed": 2},
        "sft": {"optimizer.lr": 1e-3, "seed": 1},
    }


@pytest.mark.parametrize("path", ["max_steps", "sfd.max_steps", "sft", "sft."])
def test_an_override_without_a_stage_is_an_error(path):
    with pytest.raises(ValueError, match=f"override '{path}' does not begin with a stage"):
        by_stage({path: 1})


def test_a_policy_reused_from_a_run_without_mlflow_is_refused_before_it_is_evaluated(tmp_path):
    (tmp_path / "result.json").write_text("{}")
    policy = TrainingResult(str(tmp_path / "global_step_1"), "c1", 1, {}, 1.0, 1.0)
    with pytest.raises(ValueError, match=rf"{tmp_path} was trained without MLflow.*move it away"):
        conclude("walker", {"rl": policy}, "configs/gates/locomotion.yaml", Lineage())


def test_a_policy_depends_on_all_datasets_in_its_manifest(tmp_path):
    for names in (["demo"], ["demo", "lab"]):
        data = {"files": {}, "lineage": Lineage(tuple(map(DatasetLineage, names))).to_dict()}
        (tmp_path / "manifest.json").write_text(json.dumps(data))
        assert datasets_behind(str(tmp_path)) == names


def test_every_deployment_is_a_flow_of_its_name():
    file = Path(demo.__file__).parents[1] / "infra/prefect.yaml"
    deployments = yaml.safe_load(file.read_text())["deployments"]
    for deployment in deployments:
        module, _, name = deployment["entrypoint"].partition(":")
        flow = locate(f"{module.removesuffix('.py').replace('/', '.')}:{name}")
        assert flow.name == deployment["name"]
    assert "train-locomotion" in {deployment["name"] for deployment in deployments}


def commit(home: Path) -> None:
    """A repository with a commit."""
    me = ("-c", "user.name=me", "-c", "user.email=me@here")
    for command in (("init", "-q"), (*me, "commit", "--allow-empty", "-qm", "begin")):
        subprocess.run(["git", *command], cwd=home, check=True)


@pytest.mark.parametrize(
    ("flow", "stage", "gate"),
    [
        (train_locomotion.train_locomotion, "preset", train_locomotion.NEW_MODEL_GATE),
        (train_offline.train_offline, "preset", train_offline.NEW_MODEL_GATE),
        (train_vla.train_vla, "sft", train_vla.NEW_MODEL_GATE),
        (train_vla.train_vla, "rl", train_vla.NEW_MODEL_RL_GATE),
    ],
)
def test_training_flows_default_to_files_that_exist(flow, stage, gate):
    from rrf.evaluation.gates.gate import load_gate
    from rrf.presets import resolve

    defaults = {name: p.default for name, p in signature(flow.fn).parameters.items()}
    assert defaults["gate"] is None  # the gate that rules the model, or this one for a new model
    cfg = resolve(defaults[stage])
    found = load_gate(Path(demo.__file__).parents[1] / gate)
    assert found.protocol.policy_kind == cfg.policy_kind
    assert found.protocol.is_about(cfg.to_dict())


@pytest.mark.parametrize(
    ("preset", "gate", "message"),
    [
        ("cartpole-ppo", "cartpol.yaml", r"no file '.*cartpol\.yaml'; did you mean"),
        (
            "cartpole-ppo",
            "tiny.yaml",
            "'tiny' is for a policy that sees images, but what cart",
        ),
        ("compact-vla-sft", "tiny.yaml", "trains a policy that sees images; the flow train-vla"),
        (
            "pendulum-sac",
            "cartpole.yaml",
            r"no choices \(Pendulum-v1\), but protocol 'cartpole' has 2",
        ),
    ],
)
def test_what_the_gate_does_not_judge_is_refused_before_training(
    tmp_path, monkeypatch, preset, gate, message
):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    commit(tmp_path)
    folder = Path(demo.__file__).parents[1] / "configs/gates"
    with pytest.raises(ValueError, match=message):
        fitting.check(preset, str(folder / gate), "new")


def test_what_the_gate_judges_fits_unless_the_model_is_of_another_task(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    gate = str(Path(demo.__file__).parents[1] / "configs/gates/cartpole.yaml")
    with pytest.raises(ValueError, match=r"is not a git repository with a commit.* `git commit`"):
        fitting.check("cartpole-ppo", gate, "walker")
    commit(tmp_path)
    fitting.check("cartpole-ppo", gate, "walker", ["max_iterations=2"])
    with pytest.raises(ValueError, match=r"trackers is \['tensorboard'\]; .* add mlflow"):
        fitting.check("cartpole-ppo", gate, "walker", ["trackers=[tensorboard]"])
    client = store.connect()
    client.create_registered_model("walker")
    tags = {"lineage.environment.task": "Walker2d-v5"}
    client.create_model_version("walker", str(tmp_path), tags=tags)
    with pytest.raises(ValueError, match=r"'walker' holds policies for Walker2d-v5"):
        fitting.check("cartpole-ppo", gate, "walker")


def test_flows_evaluate_by_the_file_that_the_gate_names(tmp_path):
    for folder in ("gates", "protocols"):
        (tmp_path / folder).mkdir()
    protocol = (Path(demo.__file__).parents[1] / "configs/protocols/cartpole.yaml").read_text()
    (tmp_path / "protocols/mine.yaml").write_text(protocol)  # its name is cartpole
    gate = tmp_path / "gates/mine.yaml"
    gate.write_text("name: mine\nprotocol: mine\noverall_lower_bound: 0\n")
    assert protocol_file(str(gate)) == str(tmp_path / "protocols/mine.yaml")
    inline = json.dumps(yaml.safe_load(protocol))
    gate.write_text(f"name: mine\nprotocol: {inline}\noverall_lower_bound: 0\n")
    with pytest.raises(
        ValueError, match=r"mine\.yaml contains its protocol, but.*`protocol: NAME`"
    ):
        train_locomotion.check.fn("cartpole-ppo", str(gate), "walker", {})


def test_flows_look_at_the_gate_before_they_train(repository, monkeypatch):  # noqa: F811
    def refuse(*_):
        raise ValueError("does not fit")

    shutil.copytree(
        Path(demo.__file__).parents[1] / "configs", repository / "configs", dirs_exist_ok=True
    )
    monkeypatch.chdir(repository)
    for module, step in (
        (train_locomotion, "train"),
        (train_offline, "bring_dataset"),
        (train_vla, "bring_dataset"),
    ):
        monkeypatch.setattr(module, step, lambda *_: pytest.fail("began to train"))
    monkeypatch.setattr(train_locomotion, "check", refuse)
    monkeypatch.setattr(train_offline, "check", refuse)
    for flow in (train_locomotion.train_locomotion, train_offline.train_offline):
        with pytest.raises(ValueError, match="does not fit"):
            flow.fn()
    with pytest.raises(ValueError, match=r"no file 'gone\.yaml'"):
        train_vla.train_vla.fn(gate="gone.yaml")


def test_flows_judge_by_the_gate_of_the_model_and_say_if_its_file_is_not_here(
    repository,  # noqa: F811
    monkeypatch,
):
    monkeypatch.chdir(repository)
    store.connect().create_registered_model("walker")
    file, first = "configs/gates/g.yaml", "configs/gates/first.yaml"
    with pytest.raises(ValueError, match=r"no file 'configs/gates/first\.yaml'"):
        gate_for("new", None, first)
    promotion.rule("walker", file, "the usual one")
    assert gate_for("walker", None, first) == file
    assert gate_for("walker", str(repository / file), first) == str(repository / file)
    (repository / file).rename(repository / first)
    with pytest.raises(ValueError, match=r"rules 'walker', configs/gates/g\.yaml, is not in this"):
        gate_for("walker", None, first)
    assert gate_for("walker", first, first) == first


def test_the_link_to_a_report_leads_to_the_run_that_has_it(repository, monkeypatch):  # noqa: F811
    """The same checkpoint is trained again, in a second run: it stays a version of the first."""
    shown = []
    monkeypatch.setattr(artifacts, "create_markdown_artifact", lambda text, **_: shown.append(text))
    client = store.connect()
    first, second = new_run(client), new_run(client)
    _, report = register(repository, "walker", first, 1, solved=18)
    checkpoint, evaluation = (str(repository / f"checkpoints/{n}") for n in ("1", "evaluation-1"))
    policy = TrainingResult(str(checkpoint), "c1", 1, {}, 1.0, 1.0, second)
    gate = str(repository / "configs/gates/g.yaml")
    with progress.listening(lambda step, line: None):
        training.register.fn("walker", policy, evaluation, collect_lineage("demo"), gate)
    place = f"evaluation/{report.digest[:12]}"
    assert f"MLflow run: `rrf open {first}`" in shown[0]
    assert f"{place}/report.html" in [file.path for file in client.list_artifacts(first, place)]
    assert second not in shown[0]


def test_a_video_artifact_is_a_small_moving_picture(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(artifacts, "create_image_artifact", lambda **values: made.append(values))
    frames = [np.full((48, 64, 3), level, np.uint8) for level in range(0, 250, 5)]
    write_video(tmp_path / "videos/a.mp4", frames, fps=25)
    entry = {"path": "videos/a.mp4", "task": "go", "index": 0, "success": True}
    report = Evaluation({}, "", "", [], {}, videos=[entry])
    artifacts.show_video(report, tmp_path)
    kind, _, content = made[0]["image_url"].partition(",")
    assert kind == "data:image/webp;base64"
    picture = Image.open(io.BytesIO(base64.b64decode(content)))
    assert (picture.size, picture.n_frames) == ((64, 48), 16)  # two seconds, eight per second
    assert made[0]["description"] == f"go, success; all videos: {tmp_path / 'videos'}"
    artifacts.show_video(Evaluation({}, "", "", [], {}), tmp_path)
    assert len(made) == 1


def test_a_listener_hears_every_line_of_its_step():
    heard = []
    with progress.listening(lambda step, line: heard.append((step, line))):
        report = progress.reporter("sft")
        report("step 1/10")
        report("step 2/10")
    assert heard == [("sft", ""), ("sft", "step 1/10"), ("sft", "step 2/10")]


def test_the_demo_prints_lines_where_the_cursor_cannot_move(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    screen = io.StringIO()
    with Display(Console(file=screen, force_terminal=True, color_system=None)) as display:
        display("gate", "look 1 of 2: pass")
    first, last = (line.strip() for line in screen.getvalue().splitlines())
    assert first == "Gate: begins"
    assert re.fullmatch(r"Gate: done after \d+ s", last)


def test_the_plugin_leaves_an_unknown_prefect_alone(monkeypatch):
    from prefect.client.orchestration import PrefectClient

    plain = PrefectClient.read_deployment_by_name
    monkeypatch.setattr(PrefectClient, "read_deployment_by_name", plain)
    prefect_plugin.setup_environment(
        ctx=SimpleNamespace(prefect_version="3.9.0", api_url="http://there/api")
    )
    assert PrefectClient.read_deployment_by_name is plain


def test_the_plugin_passes_full_names_on_and_is_installed_once(monkeypatch):
    from prefect.client.orchestration import PrefectClient

    async def read_deployment_by_name(self, name):
        return f"plain {name}"

    monkeypatch.setattr(PrefectClient, "read_deployment_by_name", read_deployment_by_name)
    for _ in range(2):
        prefect_plugin.setup_environment(
            ctx=SimpleNamespace(prefect_version="3.8.8", api_url="http://there/api")
        )
    wrapped = PrefectClient.read_deployment_by_name
    assert wrapped.__wrapped__ is read_deployment_by_name
    assert asyncio.run(wrapped(None, "train-vla/train-vla")) == "plain train-vla/train-vla"


def test_a_full_disk_stops_the_demo_before_it_begins(monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(demo.shutil, "disk_usage", lambda _: usage(10**10, 10**10, 5 * 10**8))
    with pytest.raises(ValueError, match=r"0\.5 GB free .* needs 1\.0 GB"):
        demo.check_machine()


def test_the_demo_outside_the_repository_says_so(tmp_path):
    env = {key: value for key, value in os.environ.items() if key != "RRF_HOME"}
    root = Path(demo.__file__).parents[1]
    result = subprocess.run(
        [sys.executable, "-m", "infra.demo"],
        cwd=tmp_path,
        env=env | {"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {tmp_path} is not inside the repository of rrf")


def test_a_second_demo_in_the_same_checkout_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    refused = pytest.raises(ValueError, match=rf"another `make demo` \(pid {os.getpid()}\)")
    with demo.only_one(), refused, demo.only_one():
        pass
    with demo.only_one(), pytest.raises(ValueError, match="`rrf services up` when it is done"):
        services.check_no_demo()
    services.check_no_demo()
    with demo.only_one():
        pass


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> Path:
    """A repository whose recordings DVC knows, has pushed, and no longer has here."""
    root = tmp_path_factory.mktemp("recordings")
    (root / "datasets/raw").mkdir(parents=True)
    (root / "datasets/raw/one.hdf5").write_text("one")
    (root / ".gitignore").write_text("/datasets/\n")
    (root / "datasets.dvc").write_text("outs:\n- path: datasets/raw\n  hash: md5\n")
    for command in (
        "git init -q",
        "dvc init -q",
        "dvc remote add -q -d demo remote",
        "dvc commit -q -f datasets.dvc",
        "dvc push -q datasets.dvc",
        "rm -rf .dvc/cache datasets/raw",
    ):
        words = command.split()
        program = [sys.executable, "-m", "dvc"] if words[0] == "dvc" else words[:1]
        subprocess.run([*program, *words[1:]], cwd=root, check=True)
    return root


def test_a_new_workspace_has_nothing_to_pull(tmp_path, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(tmp_path))
    file = tmp_path / "datasets.dvc"
    file.write_text("outs:\n- path: datasets/raw\n  hash: md5\n")  # as `rrf init` writes it
    assert dvc_words("demo") == ["repro", "publish@demo"]
    file.write_text(f"outs:\n- {{path: datasets/raw, hash: md5, md5: {'0' * 32}.dir}}\n")
    assert dvc_words("demo") == ["pull", "datasets.dvc", "--then", "repro", "publish@demo"]


def pull() -> None:
    with progress.listening(lambda step, line: None):
        commands.dvc("dvc-pull", "pull", "datasets.dvc")


@pytest.mark.slow
def test_pulled_recordings_are_back_and_unknown_ones_are_not_overwritten(recordings, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(recordings))
    pull()
    raw = recordings / "datasets/raw/one.hdf5"
    assert raw.read_text() == "one"
    raw.unlink()
    raw.write_text("recorded anew")
    with pytest.raises(ValueError, match="keep them: `dvc commit -f"):
        pull()
    assert raw.read_text() == "recorded anew"


@pytest.mark.slow
def test_one_process_of_dvc_does_several_commands_and_asks_the_remote(recordings, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(recordings))
    shutil.rmtree(recordings / "datasets/raw", ignore_errors=True)
    ask = ["--then", "status", "--cloud", "datasets/raw"]
    with progress.listening(lambda step, line: None):
        assert commands.dvc("dvc", "pull", "datasets.dvc", "--then", "checkout", *ask) == {}
        assert (recordings / "datasets/raw/one.hdf5").read_text() == "one"
        with pytest.raises(processes.CommandError, match="no-such-target"):
            commands.dvc("dvc", "pull", "no-such-target", "--then", "destroy", "--force", *ask)
        assert (recordings / ".dvc/config").is_file()
        other = ["remote", "add", "-q", "-f", "-d", "other", "nowhere"]
        assert is_pushed(commands.dvc("dvc", *other, *ask)) is False
        away = ["remote", "add", "-q", "-f", "-d", "other", "s3://nobody/nowhere"]
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        assert commands.dvc("dvc", *away, *ask) is None
        commands.dvc("dvc", "remote", "default", "demo")


@pytest.mark.slow
def test_recordings_missing_from_the_remote_say_how_to_get_them(recordings, monkeypatch):
    monkeypatch.setenv("RRF_HOME", str(recordings))
    for folder in ("datasets/raw", ".dvc/cache", "remote"):
        shutil.rmtree(recordings / folder)
    with pytest.raises(ValueError, match="remote lacks recordings that datasets"):
        pull()


def test_a_port_variable_that_is_no_port_is_named(monkeypatch):
    monkeypatch.setenv("RRF_PREFECT_PORT", "70000")
    with pytest.raises(ValueError, match="RRF_PREFECT_PORT='70000' is not a port number"):
        services.prefect_port()


@pytest.mark.parametrize(
    "module",
    [
        "promote",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("nightly_benchmark", "train_locomotion", "train_offline", "train_vla")
        ),
    ],
)
def test_a_flow_that_judges_loads_the_installed_plugins(module, tmp_path):
    information = tmp_path / "plugin-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: plugin\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[rrf.plugins]\nplugin = plugin:register\n")
    (tmp_path / "plugin.py").write_text("def register():\n    print('registered')\n")
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", f"import flows.{module}"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "registered\n", done.stderr
