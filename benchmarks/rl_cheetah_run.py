"""TD-MPC2 on DeepMind Control's cheetah-run, beside what its authors published:
`python -m benchmarks.rl_cheetah_run [--seeds 0 1 2] [--device cuda] [WORD ...]`.

The preset's model of 5M parameters learns from 50,000 actions, each executed twice, as theirs does.
Ten greedy episodes are played after every 10,000. All seeds learn in one process, in a thread each,
because the kernels of one are too small to fill a GPU. A finished curve is used again, a part of
one is not. Needs the packages shimmy and dm-control:

    uv pip install --no-deps shimmy==2.0.1 dm-control==1.0.44 dm-env dm-tree labmaze lxml wrapt
"""

import contextlib
import statistics
import threading
import time
import typing
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import rl_curves
from benchmarks.cheetah_run_task import EPISODE, REPEATS
from benchmarks.harness import parser_of
from benchmarks.rl_curve_chart import Point, chart
from benchmarks.rl_family_curves import FOLDER, line
from rrf import atomic, workspace
from rrf.algorithms.cuda_graphs import Replayed
from rrf.algorithms.planning.configs import discount_for
from rrf.config import parse_overrides
from rrf.data.dataset.sampling import mixed_seed
from rrf.presets.model_based import tdmpc2
from rrf.runners.control.loop import ControlProgress, ControlRunner
from rrf.runners.control.off_policy_configs import PlanningRunnerCfg

TASK = "benchmarks.cheetah_run_task:CheetahRunTwice-v0"
NAME = "cheetah-run-tdmpc2"
NUM_ACTIONS, EVERY, NUM_EPISODES = 50_000, 10_000, 10
_WARM_UP = 2500  # five episodes, as the authors have it
_EVALUATION = 4242

# github.com/nicklashansen/tdmpc2 (MIT), results/*/cheetah-run.csv, after 100,000 steps of the
# simulator: the returns of the seeds.
PUBLISHED = {
    "TD-MPC2 (published)": (613.8, 454.4, 489.2),
    "TD-MPC (published)": (677.1, 640.9, 277.7),
    "SAC (published)": (362.4, 331.1, 236.9),
}


def config(seed: int, device: str, words: Sequence[str]) -> PlanningRunnerCfg:
    """The preset's config, with the paper's choices for this task."""
    iterations = NUM_ACTIONS // tdmpc2(NAME, TASK).num_steps_per_env
    settings = {
        "seed": seed,
        "device": device,
        "algorithm.gamma": discount_for(EPISODE),
        "algorithm.warmup_steps": _WARM_UP,
        "algorithm.pretraining_updates": _WARM_UP,
        "policy.actor_cfg.predicts_termination": False,
        "max_iterations": iterations,
        "save_interval": iterations,
        "replay_size": NUM_ACTIONS,
        "num_threads": 1,
        "trackers": [],
    }
    return tdmpc2(NAME, TASK).override(settings | parse_overrides(words))


class Curve:
    """Plays greedy episodes while a policy is trained, and writes a row each time."""

    def __init__(self, runner: ControlRunner, path: Path):
        self.path, self.rows = path, []
        self._model: typing.Any = runner.policy.actor
        self._act = Replayed(lambda x, plans, noise: self._model.act(x, plans, True, noise))
        env = runner.cfg.env.replace(num_envs=NUM_EPISODES)
        self._env = env.build(seed=_EVALUATION, device=str(runner.device))
        self._seed = mixed_seed(_EVALUATION, runner.cfg.seed)
        self._began, self._paused = time.perf_counter(), 0.0

    def observe(self, progress: ControlProgress) -> None:
        """Called after each iteration of training."""
        wall_s = time.perf_counter() - self._began - self._paused
        shown = progress.metrics.get("rollout/return")
        print(
            f"{self.path.stem}: {progress.num_steps} actions, {wall_s:.0f} s, {shown}", flush=True
        )
        if progress.num_steps % EVERY:
            return
        begin = time.perf_counter()
        returns = self._play()
        self._paused += time.perf_counter() - begin
        row = rl_curves.Row(
            progress.num_steps * REPEATS,
            round(wall_s, 2),
            round(time.process_time(), 2),
            None if shown is None else round(shown, 2),
            round(statistics.fmean(returns), 2),
            round(statistics.pstdev(returns), 2),
        )
        self.rows.append(row)
        rl_curves.write(self.path, self.rows)
        print(f"{self.path.stem}: {row}", flush=True)

    @torch.no_grad()
    def _play(self) -> list[float]:
        model, total = self._model, torch.zeros(NUM_EPISODES)
        observations, _ = self._env.reset()
        plans = model.initial_memory(NUM_EPISODES)
        generator = torch.Generator(plans.device).manual_seed(self._seed)
        for _ in range(EPISODE):
            noise = model.draw_noise(NUM_EPISODES, generator)
            actions, plans = self._act(model.read(observations).to(plans.device), plans, noise)
            observations, rewards, _, _ = self._env.step(actions)
            total += rewards.cpu()
        return total.tolist()


def measure(seeds: Sequence[int], device: str, words: Sequence[str], folder: Path) -> None:
    """Train the seeds whose curves are not complete."""
    threads = []
    for seed in seeds:
        path = folder / f"{NAME}-seed{seed}.csv"
        rows = rl_curves.read(path)
        if rows and rows[-1].steps >= NUM_ACTIONS * REPEATS:
            continue
        run_dir = workspace.state() / "curves" / f"{NAME}-seed{seed}-{time.time_ns()}"
        runner = config(seed, device, words).build(run_dir)
        threads.append(threading.Thread(target=_train, args=(runner, Curve(runner, path))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _train(runner: ControlRunner, curve: Curve) -> None:
    on_gpu = runner.device.type == "cuda"
    with torch.cuda.stream(torch.cuda.Stream()) if on_gpu else contextlib.nullcontext():
        runner.run(on_progress=curve.observe)


def draw(seeds: Sequence[int], folder: Path) -> Path:
    """Write the picture; returns its path."""
    curves = [rl_curves.read(folder / f"{NAME}-seed{seed}.csv") for seed in seeds]
    ours = line([(row.steps, row.return_greedy_mean) for row in rows] for rows in curves)
    lines = {f"TD-MPC2, {len(seeds)} seeds": ours}
    for label, returns in PUBLISHED.items():
        mean = statistics.fmean(returns)
        lines[label] = [
            Point(0, 0, 0, 0),
            Point(NUM_ACTIONS * REPEATS, mean, min(returns), max(returns)),
        ]
    path = folder / f"{NAME}.svg"
    title = "cheetah-run: greedy return; published: mean, lowest and highest of three seeds"
    atomic.write_text(path, chart(title, lines, of_steps="steps of the simulator"))
    return path


def main() -> None:
    """Measure and draw."""
    parser = parser_of(__doc__, seeds=(0, 1, 2))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("words", nargs="*", help="overrides for all runs")
    options = parser.parse_args()
    measure(options.seeds, options.device, options.words, options.out)
    print(draw(options.seeds, options.out), flush=True)


if __name__ == "__main__":
    workspace.settle_environment()
    main()
