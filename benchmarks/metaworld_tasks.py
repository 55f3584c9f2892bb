"""What the tasks of Meta-World show and need: `python -m benchmarks.metaworld_tasks`, two minutes.

For each task, it measures

- how many pixels of a 64 x 64 image belong to what the task moves, and to its goal if there is one
  to see, from each camera: the smallest of five initial states, by OpenGL's segmentation;
- how many of 50 initial states the scripted expert solves, asked once per action, and in how many
  actions;
- how many of them one of its demonstrations solves, repeated (`rrf.envs.metaworld.replay`): the
  shortest of five, as recordings take it.

What a task moves is every body beside the robot that an expert's episode displaces. The results go
to `docs/benchmarks/metaworld/tasks.json`; `benchmarks.vla_rl drawn` draws its tasks from them.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

import concurrent.futures
import json
import multiprocessing
import os

import mujoco
import numpy as np
from PIL import Image

from benchmarks import markdown, record
from rrf import atomic
from rrf.envs.metaworld.configs import ACTION_SCALE_M, CAMERAS, MetaWorldCfg
from rrf.envs.metaworld.engine import Episode, TaskEngine
from rrf.envs.metaworld.env import Expert
from rrf.envs.metaworld.replay import Demonstration, Replay
from rrf.envs.metaworld.tasks import NUM_INITIAL_STATES, TASKS
from rrf.envs.vec_env import InitialState

RESULTS = record.RESULTS / "metaworld" / "tasks.json"
PICTURE = record.ROOT / "docs" / "images" / "views.png"
HORIZON = 100
"""Actions, held for 5 control steps each: the 500 steps of Meta-World's own evaluation."""
_SEED, _DEMONSTRATED_SEED = 2024, 777
_ACTION_REPEAT = 5
_REACH_M = ACTION_SCALE_M * _ACTION_REPEAT
_PIXELS, _ENLARGED = 64, 3
_DRAWN = ("pick-place-v3", "peg-insert-side-v3", "basketball-v3")
_NUM_SEGMENTED = _NUM_DEMONSTRATED = 5
_SHOWN = ("corner2", "workspace", "gripperPOV")  # cameras in the table
_EXPERT_SOLVES = 0.9  # of the initial states, of tasks that may be drawn
_ROBOT = ("base", "mocap")  # bodies; what hangs on them is the robot, too
_MOVED_M, _MOVED_COS = 0.01, np.cos(np.radians(3) / 2)


def drawn(seed: int, number: int = 6) -> list[str]:
    """Tasks drawn from those whose expert solves at least nine of ten initial states."""
    measured = json.loads(RESULTS.read_text())
    solvable = [t for t in TASKS if measured[t]["expert_success"] >= _EXPERT_SOLVES]
    return sorted(np.random.default_rng(seed).choice(solvable, number, replace=False).tolist())


def table() -> str:
    """The measured numbers as a markdown table."""
    measured = json.loads(RESULTS.read_text())
    shown = [f"{what}, {camera}" for what in ("object", "goal") for camera in _SHOWN]
    rows = []
    for task, facts in measured.items():
        pixels = [facts[f"{what}_px"] for what in ("object", "goal")]
        solves, repeated = (f"{facts[f'{who}_success']:.0%}" for who in ("expert", "repeated"))
        cells = [of[camera] if of else "" for of in pixels for camera in _SHOWN]
        actions = f"{facts['expert_actions']['median']:g}"
        rows.append((task, solves, actions, repeated, *cells))
    return markdown.table(("task", "expert solves", "in actions", "repeated", *shown), rows)


def measure(task: str) -> dict:
    """The numbers of one task."""
    engine = TaskEngine(task, _ACTION_REPEAT, cameras=())
    renderer = mujoco.Renderer(engine.model, _PIXELS, _PIXELS)
    renderer.enable_segmentation_rendering()
    robot = _with_descendants(engine.model, _ROBOT)
    shown = _shortest_demonstration(engine)
    lengths, images, moved, repeated = [], [], set(), 0
    for index in range(NUM_INITIAL_STATES):
        episode = engine.begin(InitialState(task, _SEED, index))
        repeated += _play(engine, episode, Replay(shown, _REACH_M))[0]
        engine.retire(episode)
        episode = engine.begin(InitialState(task, _SEED, index))
        if index < _NUM_SEGMENTED:
            images.append({camera: _segments(renderer, episode, camera) for camera in CAMERAS})
        start = episode.data.xpos.copy(), episode.data.xquat.copy()
        if _play(engine, episode, Expert(task))[0]:
            lengths.append(episode.num_steps)
            far = np.linalg.norm(episode.data.xpos - start[0], axis=1) > _MOVED_M
            turned = np.abs((episode.data.xquat * start[1]).sum(1)) < _MOVED_COS
            moved |= set(np.flatnonzero(far | turned).tolist()) - robot
        engine.retire(episode)
    renderer.close()
    goals = {
        number
        for number in range(engine.model.nsite)
        if engine.model.site(number).name.startswith("goal") and engine.model.site_rgba[number, 3]
    }
    bodies = engine.model.geom_bodyid
    geoms = set(np.flatnonzero(np.isin(bodies, list(moved))).tolist())
    shape, mark = mujoco.mjtObj.mjOBJ_GEOM, mujoco.mjtObj.mjOBJ_SITE
    return {
        "expert_success": len(lengths) / NUM_INITIAL_STATES,
        "expert_actions": {
            "median": float(np.median(lengths)) if lengths else None,
            "most": max(lengths, default=None),
        },
        "repeated_success": repeated / NUM_INITIAL_STATES,
        "moves": sorted({engine.model.body(body).name for body in moved}),
        "object_px": _fewest(images, shape, geoms) if geoms else None,
        "goal_px": _fewest(images, mark, goals) if goals else None,
    }


def _shortest_demonstration(engine: TaskEngine) -> Demonstration:
    """The shortest success of the expert in five initial states of the demonstrations' seed."""
    demonstrations = []
    for index in range(_NUM_DEMONSTRATED):
        episode = engine.begin(InitialState(engine.task, _DEMONSTRATED_SEED, index))
        is_success, demonstration = _play(engine, episode, Expert(engine.task))
        engine.retire(episode)
        if is_success:
            demonstrations.append(demonstration)
    if not demonstrations:
        raise ValueError(f"the expert of {engine.task} solves none of {_NUM_DEMONSTRATED} states")
    return min(demonstrations, key=lambda demonstration: len(demonstration.actions))


def _play(
    engine: TaskEngine, episode: Episode, teacher: Expert | Replay
) -> tuple[bool, Demonstration]:
    """Whether a teacher succeeds, and what it saw and did."""
    seen, actions, is_success = [], [], False
    while not is_success and episode.num_steps < HORIZON:
        seen.append(episode.observation)
        actions.append(teacher.action(seen[-1]))
        ((_, is_success),) = engine.advance(episode, actions[-1][None], HORIZON)
    return is_success, Demonstration(np.stack(seen), np.stack(actions))


def _segments(renderer, episode, camera: str) -> np.ndarray:
    """Number and type of the object that each pixel shows, int32 [H, W, 2]."""
    renderer.update_scene(episode.data, camera=camera)
    return renderer.render().copy()


def _fewest(images: list[dict[str, np.ndarray]], kind: int, numbers: set[int]) -> dict[str, int]:
    """The smallest number of pixels that show these objects in an image, by camera."""
    return {
        camera: min(
            int(((of[camera][..., 1] == kind) & np.isin(of[camera][..., 0], list(numbers))).sum())
            for of in images
        )
        for camera in CAMERAS
    }


def draw_views() -> None:
    """Draw what a policy sees of some tasks at the beginning: a row per task, the cameras of the
    table side by side.
    """
    rows = []
    for task in _DRAWN:
        env = MetaWorldCfg(num_envs=1, cameras=list(_SHOWN), image_size=_PIXELS).build()
        seen = env.reset([InitialState(task, _SEED, 0)]).images
        env.close()
        rows.append(np.concatenate([seen[camera][0] for camera in _SHOWN], axis=1))
    picture = np.concatenate(rows).repeat(_ENLARGED, axis=0).repeat(_ENLARGED, axis=1)
    Image.fromarray(picture).save(PICTURE)


def _with_descendants(model, names: tuple[str, ...]) -> set[int]:
    bodies = {model.body(name).id for name in names}
    for body in range(model.nbody):  # a parent comes before its children
        if model.body_parentid[body] in bodies:
            bodies.add(body)
    return bodies


def main() -> None:
    """Measure all tasks, write the results and print them."""
    os.environ.setdefault("MUJOCO_GL", "egl")  # read where mujoco is imported: in new processes
    workers = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, workers) as pool:
        results = dict(zip(TASKS, pool.map(measure, TASKS), strict=True))
    for task, facts in results.items():
        print(task, facts, flush=True)
    atomic.write_json(RESULTS, results)
    draw_views()


if __name__ == "__main__":
    main()
