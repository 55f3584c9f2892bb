"""Offline, model-based and imitation learning beside their peers: `python -m benchmarks.rl_family
[ID ...] [--peers PYTHON] [--source CHECKOUT ...]`.

Peers run in the same call, in processes of their own; `python -m benchmarks.peers` says how each of
them is installed. TD-MPC2 needs a checkout of the official code, and IQL and CQL compare with CORL
too if there is one. Ratios are of CPU-seconds, those of all threads together. `--small` only checks
that everything runs, and saves nothing.
"""

import statistics
import typing
from collections.abc import Sequence

from benchmarks import harness, rl_family_gail, rl_family_tdmpc
from benchmarks.clock import Stopwatch, in_turns
from benchmarks.harness import Bench, Measure
from benchmarks.peers import PEERS
from benchmarks.rl_runs import SEED

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
    words: dict[str, tuple[object, ...]] = {"d3rlpy": ("--updates", updates, "--hidden", *_WIDTHS)}
    if bench.has_source("corl"):
        words["corl"] = ("--updates", updates)

    def pace_of(key: str) -> float:
        return bench.peer(f"{key}-{algorithm}", *words[key])["updates_per_cpu_s"]

    rounds = in_turns(
        lambda: _offline_pace(algorithm, updates),
        *(lambda key=key: pace_of(key) for key in words),
        repeats=bench.size(3, 1),
    )
    value, *peer_values = map(statistics.median, rounds)
    paces = dict(zip((PEERS[key].name for key in words), peer_values, strict=True))
    peer = max(paces, key=lambda name: paces[name])
    row = bench.compare(
        f"{algorithm}_updates_ratio_vs_d3rlpy",
        value,
        "updates/CPU-s",
        peer,
        paces[peer],
        seeds=[SEED],
    )
    return row | {"peers": {name: round(pace, 2) for name, pace in paces.items()}}


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
    with Stopwatch() as watch:
        learner.make_updates(updates)
    return updates / watch.cpu_s


IDS: dict[str, Measure] = {
    "iql_updates_ratio_vs_d3rlpy": iql_updates_ratio_vs_d3rlpy,
    "cql_updates_ratio_vs_d3rlpy": cql_updates_ratio_vs_d3rlpy,
    "tdmpc2_plan_ms": rl_family_tdmpc.tdmpc2_plan_ms,
    "tdmpc2_ratio_vs_official": rl_family_tdmpc.tdmpc2_ratio_vs_official,
    "gail_ratio_vs_imitation": rl_family_gail.gail_ratio_vs_imitation,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the given ids, or all of them; write each number to `docs/benchmarks/rl.json`."""
    harness.main("rl_family", __doc__, IDS, arguments, results="rl")


if __name__ == "__main__":
    main()
