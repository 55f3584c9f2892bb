"""Models of the dynamics: `python -m benchmarks.rl_dynamics [WORD ...] [--seeds 0 1 2]`.

A perceptron and a transformer learn from `pendulum-random`. Their errors in open loop on held-out
episodes, in percent of the standard deviations of the states, are printed by seed and horizon
beside those of persistence, and drawn: interquartile means over seeds with bounds of 95 %.
"""

from collections.abc import Sequence

from benchmarks.rl_curve_chart import Point, chart, interquartile
from benchmarks.rl_family_curves import FOLDER
from benchmarks.rl_runs import called, trained
from rrf import atomic
from rrf.presets import resolve
from rrf.runners.control.dynamics_configs import DynamicsRunnerCfg

PRESETS = ("pendulum-dynamics", "pendulum-dynamics-transformer")
_DATASET = "dataset=pendulum-random"


def main(seeds: Sequence[int], words: Sequence[str]) -> None:
    lines: dict[str, list[Point]] = {}
    for preset in PRESETS:
        cfg = resolve(preset, [*words, _DATASET])
        assert isinstance(cfg, DynamicsRunnerCfg)
        print("| preset | seed |", " | ".join(f"{h} steps" for h in cfg.horizons), "| CPU-s |")
        print("|---" * (len(cfg.horizons) + 3) + "|")
        errors: dict[str, list[list[float]]] = {"rmse": [], "persistence": []}
        for seed in seeds:
            result = trained(preset, seed, words, _DATASET)
            for kind, rows in errors.items():
                shares = (result["metrics"][f"open_loop/{kind}_{h}"] for h in cfg.horizons)
                rows.append([100 * share for share in shares])
            both = zip(errors["rmse"][-1], errors["persistence"][-1], strict=True)
            shown = " | ".join(f"{rmse:.2g}% ({held:.3g}%)" for rmse, held in both)
            print(f"| `{preset}` | {seed} | {shown} | {result['cpu_s']:.0f} |", flush=True)
        for label, kind in ((preset, "rmse"), ("persistence", "persistence")):
            by_horizon = zip(cfg.horizons, zip(*errors[kind], strict=True), strict=True)
            lines[label] = [Point(h, *interquartile(list(values))) for h, values in by_horizon]
    title = f"Pendulum, errors in % of standard deviations, {len(seeds)} seeds"
    path = FOLDER / "dynamics.svg"
    drawn = chart(title, lines, of_steps="steps in open loop", is_log=True, is_log_upwards=True)
    atomic.write_text(path, drawn)
    print(path)


if __name__ == "__main__":
    called(main, __doc__)
