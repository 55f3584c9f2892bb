"""Complete learning curves: `python -m benchmarks.rl_curves PRESET ... [--seeds 0 1 2]`.

Each preset is trained for its own number of steps. About twenty times on the way, its greedy policy
plays twenty episodes; the time for these is not counted. Policies that plan need far more time to
play, so they do so five times, for at most 5,000 steps. The results are kept in
`docs/benchmarks/curves/<preset>-seed<k>.csv` and drawn as `<preset>.svg` beside it, and the last
returns go to `docs/benchmarks/rl.json`.

The same command continues a run that was killed and does not repeat finished ones. A million steps
take minutes with PPO and hours with SAC.
"""

import copy
import csv
import dataclasses
import io
import shutil
import statistics
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.clock import seconds
from benchmarks.harness import parser_of
from benchmarks.record import RESULTS, number, save
from benchmarks.rl_curve_chart import Point, chart
from rrf import atomic, workspace
from rrf.config import parse_overrides
from rrf.data.dataset.sampling import mixed_seed
from rrf.presets import resolve

if typing.TYPE_CHECKING:
    from rrf.runners.control.configs import ControlRunnerCfg
    from rrf.runners.control.loop import ControlProgress, ControlRunner

CURVES = RESULTS / "curves"
COMMAND = "python -m benchmarks.rl_curves"
NUM_EVALUATIONS = 20
_NUM_EVALUATIONS_OF_PLANS, _PLANNED_STEPS = 5, 5000
NUM_EPISODES = 20
SEED = 4242  # seed of the evaluation episodes; training uses other seeds


@dataclasses.dataclass(frozen=True)
class Published:
    """A mean return with its standard deviation over seeds, and who published it."""

    mean: float
    std: float | None
    source: str

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:g}"
        return f"{self.source} {self.mean:g}{spread}"


_ZOO = "Stable-Baselines3 RL Zoo"
PUBLISHED: dict[str, tuple[Published, ...]] = {
    # Returns after a million steps unless the source says otherwise; for versions v3 and v4 of the
    # MuJoCo tasks. The first entry is the peer of the row. The band in the chart goes from the
    # lowest mean to the highest.
    "halfcheetah-ppo": (
        Published(5819, 664, _ZOO),
        Published(1443, 46, "CleanRL"),
        Published(5784, 1244, "Tianshou"),
    ),
    "hopper-ppo": (
        Published(2410, 10, _ZOO),
        Published(2383, 272, "CleanRL"),
        Published(2609, 701, "Tianshou"),
    ),
    "walker2d-ppo": (
        Published(3479, 822, _ZOO),
        Published(2288, 572, "CleanRL"),
        Published(3589, 757, "Tianshou"),
    ),
    "inverted-pendulum-ppo": (Published(963, 22, "CleanRL"), Published(1000, 0, "Tianshou")),
    "pendulum-ppo": (Published(-172, 104, f"{_ZOO} (100,000 steps)"),),
    "cartpole-ppo": (
        Published(500, 0, f"{_ZOO} (100,000 steps)"),
        Published(490.0, 6.1, "CleanRL (500,000 steps)"),
    ),
    "halfcheetah-sac": (
        Published(9535, 100, _ZOO),
        Published(9635, 1424, "CleanRL"),
        Published(12139, 1049, "Tianshou"),
        Published(11520, None, "Spinning Up"),
    ),
    "hopper-sac": (
        Published(2326, 1130, _ZOO),
        Published(2310, 343, "CleanRL"),
        Published(3542, 52, "Tianshou"),
        Published(3150, None, "Spinning Up"),
    ),
    "walker2d-sac": (
        Published(3863, 254, _ZOO),
        Published(3591, 911, "CleanRL"),
        Published(5007, 252, "Tianshou"),
        Published(4250, None, "Spinning Up"),
    ),
    "ant-sac": (Published(4616, 1354, _ZOO), Published(5850, 476, "Tianshou")),
    "humanoid-sac": (
        Published(6232, None, f"{_ZOO} (2M steps)"),
        Published(4996, None, "CleanRL (2M steps)"),
        Published(5489, None, "Tianshou (2M steps)"),
    ),
    "pendulum-sac": (Published(-157, 89, f"{_ZOO} (20,000 steps)"),),
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of a curve's file. The seconds are those of training, over all calls together."""

    steps: int
    wall_s: float
    cpu_s: float
    return_train: float | None
    return_greedy_mean: float
    return_greedy_std: float


class Curve:
    """Evaluates a policy while it is trained and writes a row each time."""

    def __init__(self, path: Path, runner: "ControlRunner"):
        self.path, self.runner = path, runner
        self.rows: list[Row] | None = None  # known once training has begun
        self._mark = seconds()

    def observe(self, progress: "ControlProgress") -> None:
        """Called after each iteration of training."""
        if self.rows is None:
            # A row beyond the resumed checkpoint is measured again.
            self.rows = [row for row in read(self.path) if row.steps < self._steps(progress)]
            last = self.rows[-1:]
            self._wall_s = last[0].wall_s if last else 0.0
            self._cpu_s = last[0].cpu_s if last else 0.0
        wall_s, cpu_s = seconds()
        self._wall_s += wall_s - self._mark[0]
        self._cpu_s += cpu_s - self._mark[1]
        interval = self.runner.cfg.save_interval
        if progress.iteration % interval == 0 or progress.iteration == progress.max_iterations:
            self._evaluate(progress)
        self._mark = seconds()

    def _evaluate(self, progress: "ControlProgress") -> None:
        assert self.rows is not None
        returns = greedy_returns(self.runner)
        train = progress.metrics.get("rollout/return")
        row = Row(
            self._steps(progress),
            round(self._wall_s, 2),
            round(self._cpu_s, 2),
            None if train is None else round(train, 2),
            round(statistics.fmean(returns), 2),
            round(statistics.pstdev(returns), 2),
        )
        self.rows.append(row)
        write(self.path, self.rows)
        print(f"{self.path.stem}: {row}", flush=True)

    def _steps(self, progress: "ControlProgress") -> int:
        """Steps of all environments so far; gradient steps where a dataset is learned from."""
        from rrf.runners.control.off_policy_configs import OfflineRunnerCfg

        if isinstance(self.runner.cfg, OfflineRunnerCfg):
            return int(progress.metrics["train/num_updates"])
        return progress.num_steps


def greedy_returns(runner: "ControlRunner", num_episodes: int = NUM_EPISODES) -> list[float]:
    """Greedy returns of the current policy, in separate environments."""
    from rrf.envs.mjlab.configs import MjlabEnvCfg
    from rrf.evaluation.control.configs import ControlProtocolCfg
    from rrf.evaluation.control.evaluate import evaluate_control
    from rrf.evaluation.protocols.limits import LimitCfg
    from rrf.runners.control.off_policy_configs import PlanningRunnerCfg

    if isinstance(runner.cfg, PlanningRunnerCfg):
        fitting = _PLANNED_STEPS // runner.env.max_episode_length
        num_episodes = min(num_episodes, max(1, fitting))
    env = runner.cfg.env.replace(num_envs=num_episodes)
    if isinstance(env, MjlabEnvCfg):
        env = env.replace(backend="native", physics="exact")
    protocol = ControlProtocolCfg(
        name="curve",
        env=env,
        seed=SEED,
        episodes_per_task=num_episodes,
        max_episode_steps=runner.env.max_episode_length,
        success={"length": LimitCfg(min=1)},
    )
    policy = copy.deepcopy(runner.policy).eval().deployable()
    report = evaluate_control(policy, runner.env.interface, protocol)
    return [episode.episode_return for episode in report.episodes]


def starts() -> list[int]:
    """The seeds that these episodes of a Gymnasium task begin with."""
    from rrf.evaluation.control.evaluate import block_seed

    seed = block_seed(SEED, block=0)
    return [mixed_seed(seed, episode) for episode in range(NUM_EPISODES)]


def config(preset: str, seed: int, overrides: Sequence[str] = ()) -> "ControlRunnerCfg":
    """The config for the curve of a preset. Raises ValueError if it is not state-based control."""
    from rrf.runners.control.configs import ControlRunnerCfg
    from rrf.runners.control.off_policy_configs import PlanningRunnerCfg

    cfg = resolve(preset, parse_overrides(overrides))
    if not isinstance(cfg, ControlRunnerCfg):
        raise ValueError(
            f"{preset} trains a policy that sees images; use `benchmarks.vla_rl` for those"
        )
    plans = isinstance(cfg, PlanningRunnerCfg)
    number = _NUM_EVALUATIONS_OF_PLANS if plans else NUM_EVALUATIONS
    return cfg.replace(
        seed=seed,
        save_interval=max(1, cfg.max_iterations // number),
        num_checkpoints_kept=1,
        log_interval=1,
        video_interval=None,
        trackers=[],
    )


def places(preset: str, seed: int, out: Path = CURVES) -> tuple[Path, Path]:
    """Where a curve is kept, and the directory of its run."""
    variant, name = "" if out == CURVES else out.name, f"{preset}-seed{seed}"
    return out / f"{name}.csv", workspace.state() / "curves" / variant / name


def train(cfg: "ControlRunnerCfg", path: Path, run_dir: Path) -> list[Row]:
    """Train to the end, continuing a killed run if there is one; returns the rows of `path`."""
    if not is_complete(read(path), cfg):
        runner = cfg.build(run_dir)
        curve = Curve(path, runner)
        runner.run(on_progress=curve.observe)
    return read(path)


def is_complete(rows: Sequence[Row], cfg: "ControlRunnerCfg") -> bool:
    """Whether these are the rows of a complete run."""
    from rrf.runners.control.off_policy_configs import OfflineRunnerCfg

    per_iteration: int = cfg.env.num_envs * cfg.num_steps_per_env  # type: ignore[attr-defined]
    if isinstance(cfg, OfflineRunnerCfg):
        per_iteration = cfg.updates_per_iteration
    return bool(rows) and rows[-1].steps >= cfg.max_iterations * per_iteration


def read(path: Path) -> list[Row]:
    """The rows of a curve's file; empty if there is no file."""
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return [
            Row(
                steps=int(cells["steps"]),
                return_train=float(cells["return_train"]) if cells["return_train"] else None,
                **{
                    name: float(cells[name])
                    for name in ("wall_s", "cpu_s", "return_greedy_mean", "return_greedy_std")
                },
            )
            for cells in csv.DictReader(file)
        ]


def write(path: Path, rows: Iterable[Row]) -> None:
    """Replace a curve's file."""
    text = io.StringIO()
    names = [field.name for field in dataclasses.fields(Row)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(dataclasses.asdict(row) for row in rows)
    atomic.write_text(path, text.getvalue())


def known(preset: str, folder: Path = CURVES) -> dict[int, list[Row]]:
    """Seed -> rows of the complete runs of a preset that were measured."""
    curves = {
        int(path.stem.rpartition("-seed")[2]): read(path)
        for path in sorted(folder.glob(f"{preset}-seed*.csv"))
    }
    cfg = config(preset, 0)
    return {seed: rows for seed, rows in sorted(curves.items()) if is_complete(rows, cfg)}


def draw(preset: str, curves: dict[int, list[Row]], folder: Path) -> Path:
    """Write the chart of a preset's curves; returns its path."""
    published = PUBLISHED.get(preset, ())
    means = [entry.mean for entry in published]
    points = {f"seed {seed}": to_points(rows) for seed, rows in curves.items()}
    path = folder / f"{preset}.svg"
    title = f"{preset}: greedy return, {NUM_EPISODES} episodes"
    band = (min(means), max(means)) if means else None
    atomic.write_text(path, chart(title, points, band, "; ".join(map(str, published))))
    return path


def to_points(rows: Iterable[Row]) -> list[Point]:
    """Greedy returns as points of a chart."""
    bounds = ((row, row.return_greedy_mean, row.return_greedy_std) for row in rows)
    return [Point(row.steps, mean, mean - std, mean + std) for row, mean, std in bounds]


def number_row(preset: str, curves: dict[int, list[Row]]) -> dict:
    """The row of a preset: mean over seeds of the last greedy returns, and a published value."""
    ends = [rows[-1] for rows in curves.values()]
    returns = [row.return_greedy_mean for row in ends]
    peer = PUBLISHED.get(preset, (None,))[0]
    value = statistics.fmean(returns)
    row = number(
        f"return_{preset}",
        value,
        f"return after {ends[0].steps:,} steps",
        command=f"{COMMAND} {preset}",
        peer=None if peer is None else f"{peer} (published)",
        peer_value=None if peer is None else peer.mean,
        ratio=None if peer is None else _ratio(value, peer.mean),
        seeds=list(curves),
    )
    return row | {
        "by_seed": returns,
        "published": [str(entry) for entry in PUBLISHED.get(preset, ())],
        "train_wall_s": round(statistics.fmean(row.wall_s for row in ends), 1),
        "train_cpu_s": round(statistics.fmean(row.cpu_s for row in ends), 1),
    }


def _ratio(value: float, peer: float) -> float:
    """A ratio above 1 if ours is better. Tasks that have only costs have returns below 0."""
    return peer / value if peer < 0 else max(value / peer, 0.0)


def main() -> None:
    """Train the given presets, draw their curves, and write `docs/benchmarks/rl.json`."""
    parser = parser_of(__doc__, seeds=(0, 1, 2))
    parser.add_argument("presets", nargs="+", metavar="PRESET")
    parser.add_argument("--fresh", action="store_true", help="discard results of earlier calls")
    parser.add_argument("--out", type=Path, default=CURVES, help="another folder; saves no number")
    parser.add_argument("--override", nargs="+", default=[], metavar="PATH=VALUE")
    words = parser.parse_args()
    if words.override and words.out == CURVES:
        parser.error("--override changes what is measured; give another folder with --out too")
    try:
        for preset in words.presets:
            config(preset, 0, words.override)
    except ValueError as error:
        parser.error(str(error))
    for preset in words.presets:
        curves = {}
        for seed in words.seeds:
            path, run_dir = places(preset, seed, words.out)
            if words.fresh:
                shutil.rmtree(run_dir, ignore_errors=True)
                path.unlink(missing_ok=True)
            curves[seed] = train(config(preset, seed, words.override), path, run_dir)
        if words.out == CURVES:
            curves = known(preset)
            save("rl", [number_row(preset, curves)])
        print(f"{preset}: {draw(preset, curves, words.out)}", flush=True)


if __name__ == "__main__":
    workspace.settle_environment()
    main()
