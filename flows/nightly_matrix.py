"""`nightly-matrix`: every simulator that is set up here, and every champion, in one night.

First each simulator begins some episodes, as `rrf envs check` does. Then each model that has
a champion runs `nightly-benchmark` under the protocol of the gate that rules it, or what
`configs/nightly.yaml` says, which may also time trainings. A failure does not keep the others from
running; the run fails at the end and names what failed.
"""

import tempfile
from pathlib import Path

from prefect import flow, get_run_logger

from flows import artifacts, commands, notify, slots
from flows.gate import protocol_file
from flows.nightly_benchmark import nightly_benchmark
from flows.steps import step
from flows.this_run import completed
from flows.training import as_words
from rrf import processes, workspace
from rrf.evaluation.nightly import matrix
from rrf.evaluation.nightly.matrix import SpeedCfg
from rrf.evaluation.protocols import checks
from rrf.registry import listing, promotion, speeds, versions


@step(name="check simulator", task_run_name="check the simulator of {protocol}")
def check_simulator(protocol: str, path: str) -> checks.Check:
    """See `rrf.evaluation.protocols.checks`."""
    found = checks.check(Path(path))
    get_run_logger().info("%s: %s: %s", protocol, found.state, found.said)
    return found


@step(name="champions")
def champions() -> dict[str, str]:
    """The models that have a champion, each with the file of the gate that rules it."""
    gates = {name: promotion.gate_of(name) for name in listing.models()}
    return {name: gate.file for name, gate in gates.items() if gate and versions.champion(name)}


def night_of(model: str, gate: str, protocol: str | None) -> tuple[str, str]:
    """Evaluate the champion of a model; the state of that run, and its message."""
    try:
        file = f"configs/protocols/{protocol}.yaml" if protocol else protocol_file(gate)
        ended = nightly_benchmark(model, file, return_state=True)
    except ValueError as error:  # its gate is not in this workspace, or has no protocol of its own
        return checks.FAILED, str(error)
    said = "" if ended.is_completed() else checks.FAILED
    return said or ended.name or checks.OK, ended.message or ""


@step(name="speed", task_run_name="time {preset}")
def speed_of(preset: str, cfg: SpeedCfg) -> tuple[str, str]:
    """Time a training; its state, and a sentence."""

    def measure_on(card: slots.Card) -> float:
        best = 0.0
        for _ in range(2):
            best = max(best, *(_steps_per_cpu_s(cfg, card) for _ in range(cfg.rounds)))
            if speeds.ratio(cfg, best) >= cfg.least:
                break
        return best

    try:
        best = slots.on_gpu(measure_on)
    except (processes.CommandError, ValueError) as error:
        return checks.FAILED, str(error)
    _, ratio = speeds.record(cfg, best, speeds.now())
    said = f"{best:.4g} steps per CPU second, {ratio:.2f} of the first night"
    if ratio >= cfg.least:
        return checks.OK, said
    why = f"{said}, and less than {cfg.least:g} is an alarm; see: rrf nightly speeds"
    return checks.FAILED, f"{why}; if that is wanted, write `since: DAY` in {matrix.FILE}"


def _steps_per_cpu_s(cfg: SpeedCfg, card: slots.Card) -> float:
    with tempfile.TemporaryDirectory(dir=_scratch()) as folder:
        words = (*as_words(dict(cfg.overrides)), "trackers=[]", "--run-dir", Path(folder, "run"))
        how = {"env": card.env, "stop_when": card.wanted}
        facts = commands.rrf("speed", "train", cfg.preset, *words, **how)
    return (facts.get("num_steps") or facts["steps"]) / facts["cpu_s"]


def _scratch() -> Path:
    folder = workspace.state() / "speeds"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@flow(
    name="nightly-matrix",
    flow_run_name="nightly-matrix",
    **notify.OF_EVERY_FLOW,
)
def nightly_matrix(simulators: list[str] | None = None):
    """Check the simulators, then evaluate champions and time trainings; fail at the end if
    something failed.

    Args:
        simulators: Which to check, e.g. libero; by default all that are set up here.
    """
    cfg = matrix.load()  # an error in the file ends the run before anything is evaluated
    found = [
        check_simulator(path.stem, str(path)) for path in checks.protocols_of(simulators or [])
    ]
    gates = champions()
    cells, missing = matrix.cells(cfg, gates)
    rows = {f"{m} {p or ''}".strip(): night_of(m, gates[m], p) for m, p in cells}
    timed = {f"speed of {c.key}": speed_of(c.preset, c) for c in (cfg.speeds if cfg else ())}
    none = {name: ("no champion", f"no champion fits it; see {matrix.FILE}") for name in missing}
    artifacts.show_matrix(found, rows | timed | none)
    failed = [check.protocol for check in found if check.state == checks.FAILED]
    failed += [name for name, (state, _) in (rows | timed).items() if state == checks.FAILED]
    if failed:
        raise RuntimeError(f"failed: {', '.join(failed)}; the artifact of this run has the reasons")
    there = sum(check.state == checks.OK for check in found)
    said = f"{there} of {len(found)} protocols play here, {len(rows)} champions without alarm"
    if missing:
        said += f", no champion of {', '.join(missing)}"
    if timed:
        said += f", {len(timed)} trainings as fast as before"
    return completed(said, {"protocols": there, "champions": len(rows), "speeds": len(timed)})
