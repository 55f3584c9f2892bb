"""Isaac Lab on a CPU through our adapter: environment steps per CPU-second of all processes, and
the curve of a walker beside that of Isaac Lab's own rsl_rl run.

`python -m benchmarks.platforms ID` needs `rrf envs setup isaaclab`. The curves are kept in
`docs/benchmarks/curves/isaaclab`; one that is there is not trained again.
"""

import csv
import json
import subprocess
import tempfile
import typing
from pathlib import Path

import torch

from benchmarks.harness import Bench, Measure
from benchmarks.isaaclab_peer import FIELDS
from benchmarks.peers import NotMeasuredError
from benchmarks.record import RESULTS
from benchmarks.rl_curve_chart import Point, chart
from rrf.envs.foreign import interpreters
from rrf.envs.isaaclab import tasks
from rrf.envs.isaaclab.configs import IsaacLabEnvCfg
from rrf.evaluation.cpu_time import cpu_seconds
from rrf.presets import resolve
from rrf.runners.control.configs import ControlRunnerCfg, OnPolicyRunnerCfg

_WARM_UP = 10
_CURVES = RESULTS / "curves" / "isaaclab"
_WALKER, _SEED = "isaaclab-go2-flat-ppo", 0
Curve = list[dict[str, float]]


def walker_curves(bench: Bench) -> dict:
    """The last returns of Go2's preset, and of rsl_rl after as many steps in the same environment,
    with as many environments and Isaac Lab's settings.
    """
    cfg = resolve(_WALKER)
    assert isinstance(cfg, OnPolicyRunnerCfg)
    cfg = cfg.replace(max_iterations=bench.size(cfg.max_iterations, 2), seed=_SEED, trackers=[])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if bench.is_small else _CURVES
        folder.mkdir(parents=True, exist_ok=True)
        ours = _kept(folder / f"{_WALKER}.csv") or _ours(cfg, Path(scratch, "ours"))
        _keep(ours, folder / f"{_WALKER}.csv")
        theirs = _kept(folder / f"{_WALKER}-rsl_rl.csv") or _rsl_rl(cfg, Path(scratch))
        _keep(theirs, folder / f"{_WALKER}-rsl_rl.csv")
        lines = {"rrf": _points(ours), "rsl_rl": _points(theirs)}
        picture = chart("Isaac-Velocity-Flat-UnitreeGo2: mean return of 100 episodes", lines)
        (folder / f"{_WALKER}.svg").write_text(picture)
    for name, curve in (("rrf", ours), ("rsl_rl", theirs)):
        rate = curve[-1]["steps"] / curve[-1]["cpu_s"]
        print(f"{name}: {curve[-1]['cpu_s']:.0f} CPU-s, {rate:.0f} env-steps/CPU-s")
    values = [sum(row["return"] for row in curve[-10:]) / 10 for curve in (ours, theirs)]
    return bench.compare(
        "isaaclab_go2_return", values[0], "mean return", "rsl_rl", values[1], seeds=[_SEED]
    )


def _ours(cfg: OnPolicyRunnerCfg, run_dir: Path) -> Curve:
    rows: Curve = []
    begun = cpu_seconds()

    def observe(progress: typing.Any) -> None:
        seen = [progress.metrics.get(f"rollout/{name}", 0.0) for name in FIELDS[1:3]]
        values = (progress.num_steps, *seen, cpu_seconds() - begun)
        rows.append(dict(zip(FIELDS, values, strict=True)))

    try:
        cfg.build(run_dir).run(on_progress=observe)
    except ValueError as error:
        raise NotMeasuredError(str(error)) from error
    return rows


def _rsl_rl(cfg: OnPolicyRunnerCfg, out: Path) -> Curve:
    assert isinstance(cfg.env, IsaacLabEnvCfg)
    python = interpreters.interpreter("isaaclab").python
    script, folder = Path(__file__).with_name("isaaclab_peer.py"), Path(tasks.__file__).parent
    words = [folder, cfg.env.task, cfg.env.num_envs, cfg.max_iterations, _SEED]
    command = [python, "-s", script, *words, json.dumps(cfg.env.overrides), out]
    subprocess.run(
        [str(word) for word in command], check=True, env=interpreters.foreign_environment()
    )
    rows = _kept(out / "curve.csv")
    assert rows
    return rows


def _kept(file: Path) -> Curve:
    if not file.is_file():
        return []
    with file.open(newline="") as table:
        return [{key: float(cell) for key, cell in row.items()} for row in csv.DictReader(table)]


def _keep(curve: Curve, file: Path) -> None:
    with file.open("w", newline="") as table:
        writer = csv.DictWriter[str](table, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in curve:
            cells = {"steps": f"{row['steps']:.0f}", "cpu_s": f"{row['cpu_s']:.1f}"}
            writer.writerow({key: f"{value:.4g}" for key, value in row.items()} | cells)


def _points(curve: Curve) -> list[Point]:
    rows = curve[:: max(1, len(curve) // 200)]
    return [Point(int(row["steps"]), *[row["return"]] * 3) for row in rows]


def cartpole(bench: Bench) -> dict:
    """Steps of the cart-pole with random actions, 64 environments as Isaac Lab has them."""
    return _steps(bench, "isaaclab_cartpole_env_steps_per_cpu_s", "isaaclab-cartpole-ppo", 64, 300)


def go2(bench: Bench) -> dict:
    """Steps of Go2 with random actions, 256 environments as the preset has them."""
    return _steps(bench, "isaaclab_go2_env_steps_per_cpu_s", "isaaclab-go2-flat-ppo", 256, 100)


def _steps(bench: Bench, id: str, preset: str, num_envs: int, num_steps: int) -> dict:
    cfg = resolve(preset)
    assert isinstance(cfg, ControlRunnerCfg)
    try:
        env = cfg.env.replace(num_envs=num_envs).build(seed=0)
    except ValueError as error:
        raise NotMeasuredError(str(error)) from error
    generator = torch.Generator().manual_seed(0)
    actions = torch.randn(_WARM_UP, num_envs, env.num_actions, generator=generator)
    try:
        for each in actions:
            env.step(each)
        begun, count = cpu_seconds(), bench.size(num_steps, _WARM_UP)
        for step in range(count):
            env.step(actions[step % _WARM_UP])
        cpu_s = cpu_seconds() - begun
    finally:
        env.close()
    return bench.number(id, count * num_envs / cpu_s, "env-steps/CPU-s", seeds=[0])


IDS: dict[str, Measure] = {
    "isaaclab_cartpole_env_steps_per_cpu_s": cartpole,
    "isaaclab_go2_env_steps_per_cpu_s": go2,
    "isaaclab_go2_return": walker_curves,
}
