"""Somebody can write to the artifact store: what a loaded policy is, and what is run to load it."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import yaml

import rrf
from rrf import atomic, workspace
from rrf.lineage import Lineage
from rrf.mlflow_store import store
from rrf.mlflow_store.artifacts import local_folder
from rrf.registry import loading, packaging, registration, versions
from rrf.registry.loading import DIGEST_VARIABLE
from rrf.runners.checkpoints.deployable import copy_deployable, deployable_digest
from rrf.runners.checkpoints.deployed_control import DeployedControl
from tests.evaluation.control.control_checkpoints import write_control_checkpoint
from tests.waiting import wait_for

SEEN = {"policy": np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -3.0]], np.float32)}
PLANTED = "from pathlib import Path\nPath({marker!r}).touch()\n"
LOADER = "def _load_pyfunc(path):\n    raise RuntimeError('planted')\n"


@pytest.fixture
def checkpoint(home, monkeypatch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / '.rrf/mlflow.db'}")
    return write_control_checkpoint(
        home / "checkpoints/run", "Pendulum-v1", Lineage(git_revision="a")
    )


@pytest.fixture
def run_id(checkpoint) -> str:
    client = store.connect()
    return client.create_run(store.experiment_id(client, "train")).info.run_id


@pytest.fixture
def model(checkpoint, run_id) -> Path:
    """The files of version 1 of `pendulum` in the artifact store."""
    registration.register(checkpoint, "pendulum", run_id, Lineage(git_revision="a"))
    uri = store.connect().get_model_version_download_uri("pendulum", "1")
    folder = local_folder(uri, workspace.tracking_uri())
    assert folder
    return folder


def plain(reference: str):
    import mlflow

    return mlflow.pyfunc.load_model(f"models:/{reference}")


def fetched(reference: str):
    loading.fetch(reference, workspace.home() / "fetched")


WAYS = (rrf.load_policy, plain, fetched)


def replace_policy(model: Path, home: Path) -> str:
    """Put another policy of the same shape, with its own manifest, in the place of the first.

    Returns:
        Its digest.
    """
    lineage = Lineage(git_revision="a")
    other = write_control_checkpoint(home / "other", "Pendulum-v1", lineage, seed=7)
    shutil.rmtree(model / packaging.PLACE)
    return copy_deployable(other, _empty(model / packaging.PLACE))


def test_a_packaged_model_is_data_and_names_the_loader_of_the_installed_package(model):
    flavor = yaml.safe_load((model / "MLmodel").read_text())["flavors"]["python_function"]
    assert flavor["loader_module"] == "rrf.registry.loading"
    assert not {"python_model", "model_code_path", "data"} & flavor.keys()
    assert flavor["code"] is None
    assert [path for path in model.rglob("*") if path.suffix in (".py", ".pkl")] == []


def test_both_ways_answer_with_the_actions_of_the_policy(model, checkpoint):
    expected = DeployedControl(checkpoint).act(SEEN)
    assert np.ptp(expected) > 1e-4
    for policy in (rrf.load_policy("pendulum@candidate"), plain("pendulum@candidate")):
        np.testing.assert_array_equal(policy.predict(SEEN), expected)
        assert [spec.name for spec in policy.metadata.signature.inputs] == ["policy"]
        with pytest.raises(Exception, match="policy"):
            policy.predict({"policy": np.zeros((2, 4), np.float32)})


def test_weights_and_manifest_replaced_together_are_refused(model, home):
    replace_policy(model, home)
    atomic.check_manifest(model / packaging.PLACE)  # the files agree with each other
    for load in WAYS:
        with pytest.raises(ValueError, match="they were replaced; do not use them"):
            load("pendulum/1")
    assert not (home / "fetched").exists()


def test_a_lineage_that_was_edited_in_the_store_is_refused(model):
    file = model / packaging.PLACE / atomic.MANIFEST
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps(manifest | {"lineage": {"git_revision": "b"}}, indent=2) + "\n")
    for load in WAYS:
        with pytest.raises(ValueError, match="lineage, the step or the kind of policy"):
            load("pendulum/1")


def test_code_planted_beside_the_checkpoint_is_not_run(model, home):
    marker = home / "planted"
    for name in ("policy_model.py", "rrf/registry/loading.py", "sitecustomize.py"):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text(PLANTED.format(marker=str(marker)) + LOADER)
    for load in (rrf.load_policy, plain):
        load("pendulum/1").predict(SEEN)
    assert not marker.exists()


def test_mlflow_runs_what_an_edited_mlmodel_names_but_load_policy_does_not(model, home):
    marker = home / "planted"
    (model / "planted_code").mkdir()
    (model / "planted_code/planted_loader.py").write_text(
        PLANTED.format(marker=str(marker)) + LOADER
    )
    file = model / "MLmodel"
    described = yaml.safe_load(file.read_text())
    described["flavors"]["python_function"] |= {
        "code": "planted_code",
        "loader_module": "planted_loader",
    }
    file.write_text(yaml.safe_dump(described))
    rrf.load_policy("pendulum/1").predict(SEEN)
    fetched("pendulum/1")
    assert not marker.exists()
    with pytest.raises(RuntimeError, match="planted"):  # as docs/how-to/serve-a-policy.md says
        plain("pendulum/1")
    assert marker.exists()


def test_a_digest_edited_in_the_registry_contradicts_the_logged_model(model, home):
    digest = replace_policy(model, home)
    store.connect().set_model_version_tag("pendulum", "1", "checkpoint_digest", digest)
    for load in WAYS:
        with pytest.raises(ValueError, match=r"was registered as checkpoint .* somebody edited it"):
            load("pendulum/1")


def test_a_version_that_rrf_did_not_register_is_refused(model):
    client = store.connect()
    client.create_model_version("pendulum", model.as_uri())
    for load in (rrf.load_policy, plain):
        with pytest.raises(ValueError, match="version 2 has no tag checkpoint_digest"):
            load("pendulum/2")


@pytest.mark.parametrize("linked", ["model.safetensors", ""])
def test_symbolic_links_in_the_store_are_not_followed(model, home, linked):
    place = model / packaging.PLACE / linked
    place.rename(home / "elsewhere")
    place.symlink_to(home / "elsewhere")
    for load in WAYS:
        with pytest.raises(ValueError, match="symbolic link, which is not followed"):
            load("pendulum/1")


def test_a_logged_model_is_checked_by_its_own_digest(model, home):
    import mlflow

    logged = model.parent.name
    mlflow.pyfunc.load_model(f"models:/{logged}").predict(SEEN)
    replace_policy(model, home)
    with pytest.raises(ValueError, match="they were replaced"):
        mlflow.pyfunc.load_model(f"models:/{logged}")


def test_where_no_registry_knows_the_model_its_digest_must_be_given(
    model, home, empty_store, monkeypatch
):
    import mlflow

    digest = versions.find("pendulum/1").checkpoint_digest
    copy = shutil.copytree(model, home / "container")
    shutil.copy(empty_store, home / "empty.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home / 'empty.db'}")
    with pytest.raises(ValueError, match=f"cannot be checked .* set {DIGEST_VARIABLE}"):
        mlflow.pyfunc.load_model(str(copy))
    monkeypatch.setenv(DIGEST_VARIABLE, digest)
    mlflow.pyfunc.load_model(str(copy)).predict(SEEN)
    replace_policy(copy, home)
    with pytest.raises(ValueError, match="they were replaced"):
        mlflow.pyfunc.load_model(str(copy))


def test_a_complete_logged_model_is_used_again_and_an_incomplete_one_is_not(
    checkpoint, run_id, tmp_path
):
    client, digest = store.connect(), deployable_digest(checkpoint)
    experiment = client.get_run(run_id).info.experiment_id
    tags = {"checkpoint_digest": digest, "loader": packaging.LOADER}
    killed = client.create_logged_model(experiment, "policy", run_id, tags=tags)

    def log(name: str) -> str:
        return packaging.log_model(
            client, checkpoint, run_id, digest, _empty(tmp_path / name)
        ).model_id

    of_another_loader = client.create_logged_model(
        experiment, "policy", run_id, tags=tags | {"loader": "rrf.tracking.policy_model"}
    )
    client.finalize_logged_model(of_another_loader.model_id, "READY")
    first = log("first")
    assert first not in (killed.model_id, of_another_loader.model_id)
    assert log("second") == first
    assert len(client.search_logged_models([experiment])) == 3


@pytest.mark.slow
def test_mlflow_serves_a_registered_policy_and_not_a_replaced_one(model, home, checkpoint):
    request = json.dumps({"inputs": {"policy": SEEN["policy"].tolist()}}).encode()
    with serving("models:/pendulum/1", home / "served.log") as (server, url):
        wait_for(lambda: server.poll() is not None or _answers(f"{url}/ping"))
        asked = urllib.request.Request(
            f"{url}/invocations", request, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked) as answer:
            predictions = json.load(answer)["predictions"]
    np.testing.assert_allclose(predictions, DeployedControl(checkpoint).act(SEEN), rtol=1e-6)
    replace_policy(model, home)
    with serving("models:/pendulum/1", home / "refused.log") as (server, _):
        assert server.wait(120) != 0
    assert "they were replaced; do not use them" in (home / "refused.log").read_text()


@contextlib.contextmanager
def serving(uri: str, log: Path):
    """`mlflow models serve` on a free port: its process and its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = ["--model-uri", uri, "--host", "127.0.0.1", "--port", str(port)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with log.open("w") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "models", "serve", "--env-manager", "local", *where],
            env={**os.environ, "PATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield server, f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status == 200
    except OSError:
        return False


def _empty(folder: Path) -> Path:
    folder.mkdir()
    return folder
