"""Offline, model-based and imitation learning beside their peers: `python -m benchmarks.rl_family
[ID ...] [--peers PYTHON] [--source CHECKOUT ...]`.

Peers run in the same call, in separate processes with the interpreter of `--peers`, which needs
their packages: `uv pip install d3rlpy==2.8.1`; for GAIL `uv pip install imitation==1.0.1
stable-baselines3==2.2.1 'gymnasium[mujoco]' 'setuptools<80'`. TD-MPC2 needs a checkout of the
official code (github.com/nicklashansen/tdmpc2), and IQL and CQL compare with CORL too if there is
one (github.com/tinkoff-ai/CORL). Ratios are of CPU-seconds, those of all threads together.
`--small` only checks that everything runs, and saves nothing.
"""

import statistics
import time
import typing
from collections.abc import Callable, Sequence

from benchmarks import rl_family_gail, rl_family_tdmpc
from benchmarks.record import number
from benchmarks.rl_pace import SEED, Bench, corl_command, measure_ids, measured_apart
from rrf import workspace

D3RLPY, CORL = "d3rlpy 2.8.1", "CORL 6afec90"
_COMMAND = "python -m benchmarks.rl_family"
_OBSERVATIONS, _ACTIONS, _TRANSITIONS = 17, 6, 20_000
_WIDTHS = [256, 256]


def iql_updates_ratio_vs_d3rlpy(bench: Bench) -> list[dict]:
    """Gradient steps of IQL with batches of 256, compared with d3rlpy's with the same networks."""
    return [_offline_ratio(bench, "iql", bench.size(600, 20))]


def cql_updates_ratio_vs_d3rlpy(bench: Bench) -> list[dict]:
    """Gradient steps of CQL with ten proposals, compared with d3rlpy's with the same networks."""
    return [_offline_ratio(bench, "cql", bench.size(60, 2))]


def _offline_ratio(bench: Bench, algorithm: str, updates: int) -> dict:
    """The peer is the faster one of d3rlpy and CORL."""
    words = ("--updates", updates, "--hidden", *_WIDTHS)
    paces: dict[str, list[float]] = {"ours": [], D3RLPY: [], CORL: []}
    for _ in range(bench.size(3, 1)):  # in turns, so that all meet the same load
        paces["ours"].append(_offline_pace(algorithm, updates))
        paces[D3RLPY].append(bench.peer(f"d3rlpy-{algorithm}", *words)["updates_per_cpu_s"])
        command = corl_command(bench, algorithm, "--updates", updates)
        if command:
            paces[CORL].append(measured_apart(CORL, command)["updates_per_cpu_s"])
    found = {name: statistics.median(several) for name, several in paces.items() if several}
    value = found.pop("ours")
    peer = max(found, key=lambda name: found[name])
    id = f"{algorithm}_updates_ratio_vs_d3rlpy"
    row = number(
        id, value, "updates/CPU-s", command=f"{_COMMAND} {id}", peer=peer,
        peer_value=found[peer], ratio=value / found[peer], seeds=[SEED],
    )  # fmt: skip
    return row | {"peers": {name: round(one, 2) for name, one in found.items()}}


def _offline_pace(algorithm: str, updates: int) -> float:
    """Gradient steps per CPU-second, with new batches of random transitions."""
    import torch

    from rrf.compiled.acceleration import accelerate
    from rrf.envs.control_env import Interface
    from rrf.networks.configs import plain_mlp
    from rrf.presets.offline import offline
    from rrf.runners.control.speed import keep_freed_memory
    from rrf.storage.dataset_replay import DatasetReplay
    from rrf.storage.replay import Replay

    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    keep_freed_memory()
    cfg = offline("benchmark", "HalfCheetah-v5", algorithm, network=plain_mlp(_WIDTHS, "ReLU"))
    policy: typing.Any = cfg.policy.build(Interface({"policy": _OBSERVATIONS}, _ACTIONS))
    generator = torch.Generator().manual_seed(SEED)
    learner: typing.Any = cfg.algorithm.build(policy, 1, 1, generator, "cpu")
    accelerate(learner)  # as the runner does
    layout = learner.layout
    rows = torch.randn(_TRANSITIONS, layout.width, generator=generator)
    rows[:, _OBSERVATIONS : _OBSERVATIONS + _ACTIONS].clamp_(-1, 1)
    rows[:, _OBSERVATIONS + _ACTIONS + 1 : _OBSERVATIONS + _ACTIONS + 3] = 0  # no end
    learner.replay = DatasetReplay(rows, Replay(layout, 1, 1), cfg.algorithm.gamma)
    learner.make_updates(20)  # the first ones allocate
    began = time.process_time()
    learner.make_updates(updates)
    return updates / (time.process_time() - began)


IDS: dict[str, Callable[[Bench], list[dict]]] = {
    "iql_updates_ratio_vs_d3rlpy": iql_updates_ratio_vs_d3rlpy,
    "cql_updates_ratio_vs_d3rlpy": cql_updates_ratio_vs_d3rlpy,
    "tdmpc2_plan_ms": rl_family_tdmpc.tdmpc2_plan_ms,
    "tdmpc2_ratio_vs_official": rl_family_tdmpc.tdmpc2_ratio_vs_official,
    "gail_ratio_vs_imitation": rl_family_gail.gail_ratio_vs_imitation,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the given ids, or all of them; write each number to `docs/benchmarks/rl.json`."""
    measure_ids(IDS, __doc__, arguments)


if __name__ == "__main__":
    workspace.settle_environment()
    main()
