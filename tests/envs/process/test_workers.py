import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

from rrf.envs.metaworld.configs import MetaWorldCfg
from rrf.envs.process.child import Child, ChildError
from rrf.envs.process.workers import WorkerVecEnv
from rrf.envs.vec_env import InitialState
from tests.waiting import has_exited, is_running, wait_for

TASKS = ("drawer-open-v3", "reach-v3", "window-open-v3")


def play(env):
    """Everything observable of a short run, with a call that skips and reorders slots."""
    random = np.random.default_rng(0)
    starts = [InitialState(TASKS[slot % 3], 42, slot) for slot in range(env.num_envs)]
    seen = []

    def note(observation):
        seen.extend([*observation.images.values(), observation.state])
        seen.append(np.array(observation.instruction))

    note(env.reset(starts))
    for env_ids in (None, [3, 0], [2], None, None):
        num = env.num_envs if env_ids is None else len(env_ids)
        actions = random.uniform(-1, 1, (num, 2, 4)).astype(np.float32)
        step = env.step(actions, env_ids)
        note(step.observation)
        seen += [step.reward, step.terminated, step.truncated, step.success, step.steps]
        seen.append(np.array(sorted(step.extras["log"].items())))
        if step.extras["final_obs"] is not None:
            note(step.extras["final_obs"])
        ended = np.flatnonzero(step.truncated | step.terminated)
        ids = list(range(env.num_envs)) if env_ids is None else env_ids
        if len(ended):
            slots = [ids[row] for row in ended]
            note(env.reset([InitialState("push-v3", 1, slot) for slot in slots], slots))
    env.close()
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(("num_workers", "cameras"), [(1, []), (2, ["corner2"]), (3, [])])
def test_results_do_not_depend_on_the_number_of_workers(num_workers, cameras):
    cfg = MetaWorldCfg(num_envs=4, max_episode_steps=5, image_size=32, cameras=cameras)
    expected = play(cfg.build())
    actual = play(WorkerVecEnv(cfg, num_workers))
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture(scope="module")
def env():
    """For two tests, of which the second one kills a worker."""
    env = WorkerVecEnv(MetaWorldCfg(num_envs=3, cameras=[]), num_workers=2, timeout_s=600)
    yield env
    env.close()


def test_the_contract_is_that_of_the_environment(env):
    assert (env.num_envs, env.chunk_length, env.action_dim, env.state_dim) == (3, 2, 4, 4)
    assert (env.fps, env.max_episode_steps) == (16, 40)
    env.reset([InitialState("reach-v3", 42, 0)] * 3)
    zeros = np.zeros((3, 2, 4), np.float32)
    bad = zeros.copy()
    bad[2, 0, 1] = np.inf
    with pytest.raises(ValueError, match="action of env 2, step 0, dimension 1 is inf"):
        env.step(bad)
    with pytest.raises(ValueError, match="no env 3"):
        env.step(zeros[:1], [3])
    with pytest.raises(ValueError, match="no Meta-World task 'reech-v3'; did you mean 'reach-v3'"):
        env.reset([InitialState("reech-v3", 42, 0)], [0])
    with pytest.raises(ValueError, match="2 initial states for 3 slots"):
        env.reset([InitialState("reach-v3", 42, 0)] * 2)
    assert env.step(zeros).steps.tolist() == [2, 2, 2]  # still in order after all that


def test_a_dead_worker_is_named_and_closing_returns(env):
    env.reset([InitialState("reach-v3", 42, 0)] * 3)
    os.kill(env._workers[1].pid, signal.SIGKILL)
    with pytest.raises(ChildError, match=r"environment worker 2 of 2 \(pid \d+\) died.*code -9"):
        env.step(np.zeros((3, 2, 4), np.float32))
    with pytest.raises(ValueError, match="closed"):
        env.reset([InitialState("reach-v3", 42, 0)] * 3)


def test_a_hung_worker_is_an_error_within_the_time_limit():
    env = WorkerVecEnv(MetaWorldCfg(num_envs=1, cameras=[]), num_workers=1, timeout_s=600)
    env.reset([InitialState("reach-v3", 42, 0)])
    [worker] = env._workers
    worker.timeout_s = 1.0
    os.kill(worker.pid, signal.SIGSTOP)  # it never answers
    with pytest.raises(ChildError, match="did not answer 'step' within 1 s and was killed"):
        env.step(np.zeros((1, 2, 4), np.float32))
    env.close()
    assert not is_running(worker.pid)


def test_closing_does_not_wait_for_a_stopped_worker():
    env = WorkerVecEnv(MetaWorldCfg(num_envs=1, cameras=[]), num_workers=1)
    [worker] = env._workers
    os.kill(worker.pid, signal.SIGSTOP)  # it never ends by itself
    env.close()
    env.close()
    assert not is_running(worker.pid)


def test_a_users_mistake_found_in_a_worker_stays_a_value_error():
    env = WorkerVecEnv(MetaWorldCfg(num_envs=1, renderer="wrap"), num_workers=1)
    with pytest.raises(ValueError, match="no renderer 'wrap'; did you mean 'warp'"):
        env.reset([InitialState("reach-v3", 42, 0)])


def test_any_other_failure_in_a_worker_carries_its_traceback():
    child = Child(
        "rrf.envs.metaworld.configs:MetaWorldCfg", "the child", {"num_envs": 1}, timeout_s=600
    )
    child.send("no_such_method")
    with pytest.raises(
        ChildError, match=r"^the child failed in 'no_such_method': AttributeError: .*"
    ) as failure:
        child.result()
    assert "\n" not in str(failure.value)
    (note,) = failure.value.__notes__
    assert note.startswith("In the child process:\nTraceback (most recent call last)")
    child.send("to_yaml")  # and it goes on serving
    assert "num_envs: 1" in child.result()
    child.close()


def test_a_child_outlives_the_thread_that_started_it():
    started = []

    def start():
        arguments = {"num_envs": 3}
        child = Child(
            "rrf.envs.metaworld.configs:MetaWorldCfg", "the child", arguments, timeout_s=600
        )
        child.send("to_yaml")
        started.append((child, child.result()))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    [(child, text)] = started
    wait_for(lambda: has_exited(thread.native_id))
    child.send("to_yaml")
    assert child.result() == text
    child.close()
    assert not is_running(child.pid)


def test_workers_die_with_their_parent():
    code = (
        "import time\n"
        "from rrf.envs.metaworld.env import MetaWorldCfg\n"
        "from rrf.envs.process.workers import WorkerVecEnv\n"
        "env = WorkerVecEnv(MetaWorldCfg(num_envs=2, cameras=[]), 2)\n"
        "print(*[worker.pid for worker in env._workers], flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(is_running(pid) for pid in pids)
    parent.kill()
    parent.wait()
    wait_for(lambda: not any(is_running(pid) for pid in pids))
