"""Time the official TD-MPC2 on a CPU, with any interpreter that has torch and tensordict.

`PYTHON -m benchmarks.tdmpc_peer SOURCE [--plans N --updates N ...]`, with SOURCE a checkout of
github.com/nicklashansen/tdmpc2, prints JSON as its last line: `plan_s` and `update_s`, the median
CPU-seconds of a plan and of an update, and `parameters`, the number of learned ones.

The official code names the device "cuda:0"; it is loaded with "cpu" in that place, without moving
the model there, and without Adam's option `capturable`, which a CPU does not have. It is not
compiled. Nothing else is changed.
"""

import argparse
import json
import sys
import tempfile
import types
from pathlib import Path

from benchmarks.clock import median_cpu_s

CHANGES = {
    "cuda:0": "cpu",
    "capturable=True": "capturable=False",
    "WorldModel(cfg).to(self.device)": "WorldModel(cfg)",
}


def main(arguments: list[str] | None = None) -> None:
    """Measure plans and updates, and print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("--size", type=int, default=1, help="of the model, in millions")
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--elites", type=int, default=64)
    parser.add_argument("--policy-samples", type=int, default=24)
    parser.add_argument("--plan-iterations", type=int, default=4)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--observations", type=int, default=3)
    parser.add_argument("--actions", type=int, default=1)
    parser.add_argument("--plans", type=int, default=20)
    parser.add_argument("--updates", type=int, default=10)
    words = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        agent = _agent(words, Path(scratch))
        shape = (agent.cfg.horizon, words.batch)
        batch = (
            torch.randn(shape[0] + 1, words.batch, words.observations),
            torch.rand(*shape, words.actions) * 2 - 1,
            torch.randn(*shape, 1),
            torch.zeros(*shape, 1),
        )
        observation = torch.randn(words.observations)
        [plan_s] = median_cpu_s(lambda: agent.act(observation), repeats=words.plans, warm_up=3)
        [update_s] = median_cpu_s(lambda: agent._update(*batch), repeats=words.updates, warm_up=3)
        numbers = {"plan_s": plan_s, "update_s": update_s}
    print(json.dumps(numbers | {"parameters": agent.model.total_params}), flush=True)


def _agent(words: argparse.Namespace, scratch: Path):
    """The official agent, from a copy of its modules in `scratch`."""
    for path in [*words.source.glob("tdmpc2/*.py"), *words.source.glob("tdmpc2/common/*.py")]:
        text = path.read_text()
        for old, new in CHANGES.items():
            text = text.replace(old, new)
        copy = scratch / path.relative_to(words.source / "tdmpc2")
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(text)
    sys.path.insert(0, str(scratch))
    from common import MODEL_SIZE  # pyright: ignore[reportMissingImports]
    from tdmpc2 import TDMPC2  # pyright: ignore[reportMissingImports]

    settings = _settings(words.source / "tdmpc2" / "config.yaml") | MODEL_SIZE[words.size]
    settings |= {
        "num_samples": words.samples,
        "num_elites": words.elites,
        "num_pi_trajs": words.policy_samples,
        "iterations": words.plan_iterations,
        "batch_size": words.batch,
        "obs_shape": {"state": (words.observations,)},
        "action_dim": words.actions,
        "episode_length": 200,
        "multitask": False,
        "task_dim": 0,
        "compile": False,
    }
    settings["bin_size"] = (settings["vmax"] - settings["vmin"]) / (settings["num_bins"] - 1)
    cfg = types.SimpleNamespace(**settings)
    cfg.get = settings.get
    return TDMPC2(cfg)


def _settings(path: Path) -> dict:
    """The numbers, words and switches of the official config, which is a flat YAML file."""
    settings = {}
    for line in path.read_text().splitlines():
        name, colon, text = line.partition(": ")
        if not colon or line.startswith((" ", "#")) or text == "???":
            continue
        try:
            settings[name] = json.loads(text.replace("_", "").lstrip("+"))
        except json.JSONDecodeError:
            settings[name] = text
    return settings


if __name__ == "__main__":
    main()
