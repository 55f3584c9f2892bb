"""A cluster of several nodes: placement over all of them, and what happens when one is lost."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.orchestra import toy
from tests.orchestra.conftest import assert_same
from tests.waiting import wait_for

ray = pytest.importorskip("ray", reason="Ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")

from rrf.envs.process.child import ChildError  # noqa: E402
from rrf.orchestra import ray_cluster  # noqa: E402
from rrf.orchestra.ray_child import RayChild  # noqa: E402
from rrf.orchestra.ray_cluster import Cluster  # noqa: E402
from rrf.runners.vla_rl.configs import RayCfg  # noqa: E402

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def raylets(*nodes: dict):
    """A cluster of these nodes; yields it and the process ids of their raylets."""
    cluster = cluster_utils.Cluster()
    try:
        pids = [
            cluster.add_node(**node, include_dashboard=False).all_processes["raylet"][0].process.pid
            for node in nodes
        ]
        yield cluster, pids
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_lost_node_is_replaced_by_the_others_with_the_same_bits(tmp_path):
    parent = toy.save_parent(tmp_path / "sft")
    expected = toy.inline_episodes(parent, tmp_path / "inline")
    placement = {"env": "0:0,1:1", "rollout": "0-1", "actor": "0"}
    with raylets({"num_cpus": 1}, {"num_cpus": 1}) as (cluster, pids):
        runner = toy.runner_of(parent, tmp_path / "ray", placement, cluster.address)
        backend = runner.backend
        assert_same(toy.play(backend), expected)
        assert backend.num_restarts == backend.rollout.num_restarts == 0

        second_node = [pids[1], backend.pids()[1], backend.rollout.pids()[1]]

        def kill_the_second_node():
            while second_node:
                os.kill(second_node.pop(), signal.SIGKILL)

        assert_same(toy.play(backend, kill_the_second_node), expected)
        assert backend.num_restarts >= 1
        backend.rollout.load(runner.actor.weights(), 0)
        assert backend.rollout.num_restarts >= 1
        assert_same(toy.play(backend), expected)
        backend.close()


def test_roles_that_share_nothing_cannot_take_turns(tmp_path):
    parent = toy.save_parent(tmp_path / "sft")
    with raylets(*[{"num_cpus": 1}] * 3) as (cluster, _):
        where = RayCfg(
            address=cluster.address,
            placement={"env": "0", "rollout": "1", "actor": "2"},
            offload=True,
        )
        with pytest.raises(ValueError, match="no two roles share a resource"):
            toy.run_cfg(parent, ray=where).build(tmp_path / "run")


def child(cluster, resources):
    """A process that says what it sees."""
    options = cluster.options(resources)
    return RayChild(f"{Eyes.__module__}:{Eyes.__name__}", "eyes", {}, 200.0, options)


class Eyes:
    """Served by an actor."""

    def gpus(self) -> str:
        return os.environ.get("CUDA_VISIBLE_DEVICES", "none set")


def seen(process) -> str:
    process.send("gpus")
    return process.result()


def lose(raylet, process):
    """Kill a node: its raylet, and a process there. Return when Ray knows."""
    for pid in (raylet, process.pid):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1, 120)
    with pytest.raises(ChildError, match="eyes died"):
        seen(process)


def test_processes_see_their_gpus_only_and_ray_counts_them():
    with raylets({"num_cpus": 1, "num_gpus": 3}, {"num_cpus": 1, "num_gpus": 1}) as (there, pids):
        cluster = Cluster(there.address)
        groups = cluster.groups({"first": "0", "both": "0-1"})
        nodes, gpus = groups["node"], groups[""]
        assert (len(nodes), len(gpus)) == (2, 4)
        assert (groups["first"], groups["both"]) == (gpus[:3], gpus)
        with pytest.raises(ValueError, match=r"node_groups.far: no node 2, the cluster has 2: 0:"):
            cluster.groups({"far": "1-2"})
        with pytest.raises(ValueError, match="label 'node' is taken"):
            cluster.groups({"node": "0"})
        cluster.reserve([nodes[0], gpus[0], gpus[1], gpus[3]])
        one, pair = child(cluster, gpus[:1]), child(cluster, gpus[:2])
        other, blind = child(cluster, gpus[3:]), child(cluster, nodes[:1])
        assert len(seen(pair).split(",")) == 2
        assert seen(one) == seen(pair).split(",")[0]
        assert seen(other) == "0"
        assert seen(blind) in ("", "none set")
        assert ray.available_resources()["GPU"] == 1
        lose(pids[1], other)
        moved = child(cluster, gpus[3:])
        assert seen(moved) in seen(pair).split(",")
        cluster.close()


def test_a_lost_node_that_no_other_can_replace_is_named():
    with raylets({"num_cpus": 0}, {"num_cpus": 1}) as (there, pids):
        cluster = Cluster(there.address)
        process = child(cluster, [1])
        assert seen(process) == "none set"
        lose(pids[1], process)
        with pytest.raises(ValueError, match=r"is lost, and no other one has cores .* ray start"):
            cluster.options([1])
        cluster.close()


def test_heads_of_another_version_and_nodes_with_other_code_are_named(monkeypatch):
    with raylets({"num_cpus": 1}) as (there, _):
        with monkeypatch.context() as patch:
            patch.setattr(ray, "__version__", "0.0.1")
            with pytest.raises(ValueError, match=r"of another version.* Ray: 0.0.1 .*the same Ray"):
                Cluster(there.address)
        ray.shutdown()
        monkeypatch.setattr(ray_cluster, "source_digest", lambda: "0123456789abcdef")
        cluster = Cluster(there.address)
        with pytest.raises(ValueError, match=r"another rrf \(.{12}\) than this process \(01234567"):
            cluster.reserve([0])
        cluster.close()


TOKENS = {"right": "ab" * 32, "wrong": "cd" * 32}
SMOKE = (*("orchestra", "smoke", "--rounds", "1"), *("--env", "0:0-1", "--rollout", "0"))


@contextlib.contextmanager
def own_processes(folder: Path):
    """An environment of its own for commands of Ray, whose processes end with the block."""
    folder.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    mark = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        yield kept | mark
    finally:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("RAY_TMPDIR") == str(folder):
                    process.kill()


def home_with(token: str | None, root: Path) -> str:
    """A home folder that has this token, or none."""
    home = root / f"home-{token}"
    if not home.exists():
        (home / ".ray").mkdir(parents=True)
        if token:
            (home / ".ray/auth_token").write_text(TOKENS[token])
    return str(home)


def rrf(env: dict[str, str], *words: str) -> str:
    command = [sys.executable, "-m", "rrf", *SMOKE, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_a_head_that_asks_for_a_token_is_understood(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    short = Path(os.environ.get("TMPDIR", "/tmp"), f"rrf-ray-{os.getpid()}")  # of sockets
    with own_processes(short) as env:
        head = env | {"HOME": home_with("right", tmp_path)}
        start = [Path(sys.executable).with_name("ray"), "start", "--head", "--port"]
        start += [address.rpartition(":")[2], "--node-ip-address", "127.0.0.1"]
        start += ["--include-dashboard=false", "--num-cpus", "2"]
        subprocess.run(start, env=head, check=True, capture_output=True)
        for token, mode, said in (
            ("right", "token", "all roles work"),
            ("right", None, "none is sent from here; type: export RAY_AUTH_MODE=token"),
            (None, None, "none is sent from here; put what `ray get-auth-token` prints on 127.0.0"),
            (None, "token", "RAY_AUTH_MODE is token, but"),
            ("wrong", "token", "has another token than"),
        ):
            here = env | {"HOME": home_with(token, tmp_path)}
            output = rrf(here | ({"RAY_AUTH_MODE": mode} if mode else {}), "--address", address)
            assert said in output, (token, mode, output)
            assert "InvalidAuthToken" not in output
            assert "Traceback" not in output
    shutil.rmtree(short)


def test_a_ray_that_is_slow_to_start_is_an_error_of_one_line(tmp_path):
    short = Path(os.environ.get("TMPDIR", "/tmp"), f"rrf-slow-{os.getpid()}")
    with own_processes(short) as env:
        here = env | {"HOME": home_with("right", tmp_path)}
        command = [sys.executable, "-m", "rrf", *SMOKE]
        running = subprocess.Popen(
            command, env=here, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

        def raylet():
            children = psutil.Process(running.pid).children(recursive=True)
            return next((child for child in children if child.name() == "raylet"), None)

        wait_for(raylet).suspend()  # before it has told the head that it is there
        output, _ = running.communicate(timeout=200)
    assert "error: Ray did not start in time" in output, output
    assert "type the same command again" in output
    assert "Traceback" not in output
    shutil.rmtree(short)
