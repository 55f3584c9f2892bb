"""Whole experiments in simulation, from demonstrations to success on held-out initial states.

Each experiment runs fine-tuning, evaluation, reinforcement learning and evaluation in one call. The
results go to `docs/benchmarks/headline/<name>.json`, one entry per seed. The splits are defined in
`rrf/presets/vla_rl.py`; checkpoints are chosen on validation states only.
"""

import dataclasses
import json
import shutil
import typing
from collections.abc import Sequence
from pathlib import Path

import yaml

from benchmarks import metaworld_tasks, record
from benchmarks.clock import Stopwatch
from benchmarks.harness import run_rrf, train
from rrf import atomic, workspace
from rrf.config import read_yaml
from rrf.envs.metaworld.tasks import TASKS
from rrf.evaluation.results import FILE_NAME, Evaluation
from rrf.presets.compact_vla import TARGET_TASKS
from rrf.runners.checkpoints import checkpoint

RESULTS = record.RESULTS / "headline"
DRAWN, TRIED = "drawn-", "tried-"
"""Six tasks drawn by a seed, from one demonstration of each, which is repeated where the simulator
says that object and goal are, or bent by trial and error until it solves the task."""
FRESH = f"{DRAWN}77"
"""A draw that nobody had used when everything was settled; the other draws are 0, 1 and 2."""
SIX_TASKS = "configs/protocols/metaworld-headline.yaml"
_ALL_TASKS = "configs/protocols/metaworld-mt50.yaml"
_TWO_VIEWS = "configs/protocols/metaworld-two-views.yaml"


class _Cost(typing.NamedTuple):
    wall_s: float
    cpu_s: float  # of all processes


@dataclasses.dataclass(frozen=True)
class Recordings:
    """Demonstrations recorded for an experiment, if `metaworld-demo` (25 per task) does not fit."""

    tasks: Sequence[str]
    episodes: int  # per task
    max_steps: int  # largest number of actions in a demonstration
    demonstrations: int | None = None  # of the expert, per task; the others repeat them
    trials: int | None = None  # of an initial state, by which the repetitions are found
    noise: Sequence[float] = (0.0, 0.4)
    cameras: Sequence[str] = ("corner2",)
    env: str = "metaworld"
    action_repeat: int = 5


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One row of the table."""

    title: str
    sft: str
    sft_overrides: Sequence[str] = ()
    dagger: str | None = None  # what corrects the imitating policy before it is reinforced
    dagger_overrides: Sequence[str] = ()
    rl: str | None = None
    rl_overrides: Sequence[str] = ()
    protocol: str = SIX_TASKS
    tasks: Sequence[str] | None = None  # instead of the protocol's
    recordings: Recordings | None = None
    sft_threads: int = 1  # torch threads of imitation
    pretrained: str | None = None  # the experiment whose fine-tuned policy imitation starts from
    after: str | None = None  # the experiment whose fine-tuned policy this one goes on from
    is_family: bool = False  # a row of the table of families in docs/models.md


EARLY_STOP = ("early_stop={}", "inference_batch=8")  # episodes without hope end; fuller batches
_ONE_DEMO = "compact-vla-one-demo"
_VIEWS = ("workspace", "gripperPOV")
_NUM_VIDEOS = 12  # of each evaluation of chosen tasks: failures are to be looked at
_TRIALS = 200  # of an initial state at most
_SHOWN_STEPS = 300  # of imitation of the demonstrations that the expert has shown, as in _ONE_DEMO
_FAMILIES = {
    "compact-vla-pretrain": "compact policy",
    "qwen2vl-laptop": "Qwen2-VL",
    "qwen3vl-laptop": "Qwen3-VL",
    "pi0-laptop": "pi0",
    "pi05-laptop": "pi0.5",
    "groot-laptop": "GR00T N1.7",
    "openvla-laptop": "OpenVLA",
    "openvla-oft-laptop": "OpenVLA-OFT",
    "lerobot-act-laptop": "ACT (lerobot)",
    "lerobot-diffusion-laptop": "Diffusion Policy (lerobot)",
}
_REINFORCED = {
    "metaworld-grpo-oft-laptop": ("GRPO, OpenVLA-OFT at laptop size", "openvla-oft-laptop"),
    "metaworld-grpo-pi05-laptop": ("GRPO, pi0.5 at laptop size", "pi05-laptop"),
    "metaworld-grpo-groot-laptop": ("GRPO, GR00T N1.7 at laptop size", "groot-laptop"),
}
_HELD_OUT = ("bin-picking-v3", "box-close-v3", "door-lock-v3", "door-unlock-v3", "hand-insert-v3")
"""The test tasks of Meta-World's ML45."""


def _repeated(tasks: Sequence[str], demonstrations: int, trials: int | None = None) -> Recordings:
    """Demonstrations seen by two cameras and repeated in other initial states."""
    return Recordings(tasks, 50, 100, demonstrations, trials, noise=(0.0, 0.2), cameras=_VIEWS)


def _any_tasks(
    title: str, tasks: Sequence[str], pretrained: str | None = None, trials: int | None = None
) -> Experiment:
    """The recipe for any tasks: one demonstration of each, repeated in other initial states, then
    imitation and GRPO."""
    return Experiment(
        title,
        "compact-vla-two-views",
        rl="metaworld-grpo-two-views",
        rl_overrides=(f"tasks=[{','.join(tasks)}]",),
        protocol=_TWO_VIEWS,
        tasks=tasks,
        recordings=_repeated(tasks, demonstrations=1, trials=trials),
        pretrained=pretrained,
    )


_FIFTY = Recordings(TARGET_TASKS, episodes=50, max_steps=80)
EXPERIMENTS = {
    "metaworld-grpo-compact": Experiment("GRPO, Gaussian", _ONE_DEMO, rl="metaworld-grpo-compact"),
    "metaworld-rloo-compact": Experiment(
        "RLOO, Gaussian", _ONE_DEMO, rl="metaworld-rloo-compact", after="metaworld-grpo-compact",
    ),
    "metaworld-reinforce-compact": Experiment(
        "REINFORCE++, Gaussian", _ONE_DEMO, rl="metaworld-reinforce-compact",
        after="metaworld-grpo-compact",
    ),
    "metaworld-ppo-compact": Experiment("PPO, Gaussian", _ONE_DEMO, rl="metaworld-ppo-compact"),
    "metaworld-ppo-async": Experiment(
        "PPO, asynchronous", _ONE_DEMO, rl="metaworld-ppo-async", after="metaworld-ppo-compact",
    ),
    "metaworld-sac-residual": Experiment(
        "SAC, residual", _ONE_DEMO, rl="metaworld-sac-residual", after="metaworld-grpo-compact",
    ),
    "metaworld-grpo-tokens": Experiment(
        "GRPO, tokens", "compact-vla-one-demo-tokens", rl="metaworld-grpo-tokens",
    ),
    "metaworld-grpo-flow": Experiment(
        "GRPO, flow matching", "compact-vla-one-demo-flow", rl="metaworld-grpo-flow",
    ),
    "cloning-5": Experiment(
        "cloning of 5 demonstrations per task", _ONE_DEMO,
        ("episodes_per_instruction=5", "max_steps=600"),
    ),
    "cloning-50": Experiment(
        "cloning of 50 demonstrations per task", _ONE_DEMO,
        ("episodes_per_instruction=50", "max_steps=1500"), recordings=_FIFTY,
    ),
    "metaworld-grpo-mt50": Experiment(
        "GRPO, all 50 tasks", "compact-vla-mt50", rl="metaworld-grpo-mt50", protocol=_ALL_TASKS,
        recordings=Recordings(TASKS, episodes=1, max_steps=100),
    ),
    "metaworld-grpo-mt50-two-views": Experiment(
        "GRPO, two views, all 50 tasks", "compact-vla-mt50-two-views",
        rl="metaworld-grpo-mt50-two-views", protocol=_TWO_VIEWS,
        recordings=_repeated(TASKS, demonstrations=5), sft_threads=2,
    ),
    "robosuite-grpo-compact": Experiment(
        "GRPO, two views, robosuite", "compact-vla-robosuite", rl="robosuite-grpo-compact",
        protocol="configs/protocols/robosuite-demo.yaml",
        recordings=Recordings(
            ("Lift", "Door"), episodes=1, max_steps=60, noise=(0.0,), env="robosuite",
            cameras=("agentview", "robot0_eye_in_hand"), action_repeat=2,
        ),
    ),
    "maniskill-grpo-compact": Experiment(
        "GRPO, two views, ManiSkill", "compact-vla-maniskill",
        ("episodes_per_instruction=100", "max_steps=2000"), rl="maniskill-grpo-compact",
        protocol="configs/protocols/maniskill-pickcube.yaml",
        recordings=Recordings(
            ("PickCube-v1",), episodes=200, max_steps=50, noise=(0.0, 0.1), env="maniskill",
            cameras=("workspace", "hand_camera"), action_repeat=1,
        ),
    ),
    "psi0-g1-table-grpo": Experiment(
        "DAgger and GRPO, three levels, G1 at a table", "psi0-g1-table",
        dagger="psi0-g1-table-dagger",
        dagger_overrides=("tasks=[pick-red-cube,place-red-cube-blue]", "episodes_per_task=30"),
        rl="psi0-g1-table-grpo",
        protocol="configs/protocols/g1-table-shown.yaml",
        recordings=Recordings(
            (
                *("walk-to-table", "touch-red-cube-left", "push-green-cube-left"),
                *("push-red-cube-right", "pick-red-cube", "place-red-cube-blue"),
            ),
            episodes=150, max_steps=150, noise=(0.0, 0.02, 0.05), env="g1-table", cameras=("ego",),
        ),
    ),
    "metaworld-grpo-early-stop": Experiment(
        "GRPO, Gaussian, early stop", _ONE_DEMO, rl="metaworld-grpo-compact",
        rl_overrides=EARLY_STOP, after="metaworld-grpo-compact",
    ),
    "metaworld-ml45-pretrain": Experiment(
        "two views, imitation of 45 tasks, tested on the 5 others", "compact-vla-mt50-two-views",
        protocol=_TWO_VIEWS, tasks=_HELD_OUT,
        recordings=_repeated([task for task in TASKS if task not in _HELD_OUT], demonstrations=5),
        sft_threads=2,
    ),
    "metaworld-ml45": _any_tasks(
        "GRPO, two views, 5 tasks after 45 others", _HELD_OUT, "metaworld-ml45-pretrain",
    ),
    "metaworld-ml45-scratch": _any_tasks("GRPO, two views, these 5 tasks alone", _HELD_OUT),
    **{name: Experiment(title, name, is_family=True) for name, title in _FAMILIES.items()},
    **{
        name: Experiment(title, family, rl=name, after=family)
        for name, (title, family) in _REINFORCED.items()
    },
}  # fmt: skip


def drawn(tasks_seed: int, trials: int | None = None) -> Experiment:
    """The recipe for any tasks, on six drawn by a seed."""
    tasks = metaworld_tasks.drawn(tasks_seed)
    title = f"GRPO, two views, tasks drawn by seed {tasks_seed}"
    return _any_tasks(title, tasks, trials=trials)


def measured_draws(kind: str = DRAWN) -> list[str]:
    """Names of the experiments of a kind that have results, by the seed of the draw."""
    names = [path.stem for path in RESULTS.glob(f"{kind}*.json")]
    return sorted(names, key=seed_of_draw)


def seed_of_draw(name: str) -> int:
    """The seed in drawn-N or tried-N."""
    return int(name.partition("-")[2])


def experiment_of(name: str) -> Experiment:
    """The experiment with a name: a key of `EXPERIMENTS`, drawn-N or tried-N."""
    if name.startswith(DRAWN):
        return drawn(seed_of_draw(name))
    if name.startswith(TRIED):
        return drawn(seed_of_draw(name), _TRIALS)
    return EXPERIMENTS[name]


def run(name: str, seed: int, resumes: bool = False, alone: bool = False) -> dict:
    """Measure one experiment with one seed and merge it into its file.

    Args:
        name: A key of `EXPERIMENTS`, drawn-N or tried-N.
        seed: Seed of training; demonstrations and initial states do not depend on it.
        resumes: Continue what an earlier call left in `.rrf/headline/` instead of starting over.
        alone: Also reinforce the policy that imitated the expert's demonstrations without their
            repetitions, by the same recipe.
    """
    experiment = experiment_of(name)
    folder = _folder(name, seed)
    if not resumes:
        shutil.rmtree(folder, ignore_errors=True)
    words, threads = [*experiment.sft_overrides, f"seed={seed}"], experiment.sft_threads
    costs: list[_Cost] = []  # of each stage
    demonstrations = []
    if experiment.recordings:
        published, cost = dataset(name, experiment.recordings)
        demonstrations = [f"dataset={published}"]
        costs.append(cost)
    words += demonstrations
    if experiment.pretrained:
        words.append(f"init_from={_fine_tuned(experiment.pretrained, seed)['checkpoint']}")
    protocol = _protocol(experiment, folder)
    videos = _NUM_VIDEOS if experiment.tasks else 0
    tuned = _folder(experiment.after or name, seed) / "sft"
    if experiment.after and (tuned / "result.json").is_file():
        trained = parent = _fine_tuned(experiment.after, seed)
        costs.append(_Cost(parent["wall_s"], parent["cpu_s"]))
    else:
        trained = parent = _train(costs, experiment.sft, tuned, words, threads)
    before, more = None, {}
    if experiment.rl:
        start = parent["checkpoint"]
        before = _evaluate(costs, start, protocol, folder / "before", videos)
        if experiment.dagger:
            overrides = _going_on(experiment.dagger_overrides, seed, start) + demonstrations
            start = _train(costs, experiment.dagger, folder / "dagger", overrides)["checkpoint"]
            more["corrected"] = _evaluate(costs, start, protocol, folder / "corrected", videos)
        overrides = _going_on(experiment.rl_overrides, seed, start)
        trained = _train(costs, experiment.rl, folder / "rl", overrides)
    after = _evaluate(costs, trained["checkpoint"], protocol, folder / "after", videos)
    cost = _Cost(*map(sum, zip(*costs, strict=True)))
    if experiment.recordings and (shown := experiment.recordings.demonstrations):
        if before:
            more["imitated"] = before
        # What the demonstrations alone would give; it is no part of the recipe.
        words += [f"episodes_per_instruction={shown}", f"max_steps={_SHOWN_STEPS}"]
        imitated = train(experiment.sft, folder / "shown", words, threads)
        before = _evaluate([], imitated["checkpoint"], protocol, folder / "before-repeats", videos)
        if alone and experiment.rl:
            overrides = _going_on(experiment.rl_overrides, seed, imitated["checkpoint"])
            found = train(experiment.rl, folder / "rl-alone", overrides)
            more["alone"] = _evaluate(
                [], found["checkpoint"], protocol, folder / "after-alone", videos
            )
    result = _result(seed, before, after, trained if experiment.rl else {}, cost)
    for stage, evaluation in more.items():
        rate = evaluation.overall
        result |= {stage: rate.rate, f"bounds_{stage}": [rate.low, rate.high]}
    stages = {"before": before, **more, "after": after}
    result["solved"] = {stage: _solved(e) for stage, e in stages.items() if e}
    result["sft"] = _facts(parent)
    print(json.dumps({k: v for k, v in result.items() if k != "validations"}), flush=True)
    RESULTS.mkdir(exist_ok=True)
    others = [other for other in results_of(name) if other["seed"] != seed]
    atomic.write_json(_path(name), sorted([*others, result], key=lambda entry: entry["seed"]))
    return result


def _going_on(overrides: Sequence[str], seed: int, checkpoint: str) -> list[str]:
    return [*overrides, f"seed={seed}", f"init_from={checkpoint}"]


def results_of(name: str) -> list[dict]:
    """The results of an experiment, one per seed; empty if nothing was measured."""
    return json.loads(_path(name).read_text()) if _path(name).is_file() else []


def _folder(name: str, seed: int) -> Path:
    return workspace.state() / "headline" / f"{name}-seed{seed}"


def _fine_tuned(name: str, seed: int) -> dict:
    """The result of another experiment's fine-tuning."""
    path = _folder(name, seed) / "sft" / "result.json"
    if not path.is_file():
        raise SystemExit(f"there is no {path}; first run: python -m benchmarks.vla_rl {name}")
    return json.loads(path.read_text())


def _solved(evaluation: Evaluation) -> dict[str, str]:
    """Task -> 1 or 0 for each of its initial states, in order."""
    return {
        task: "".join(str(int(e.success)) for e in evaluation.episodes if e.task == task)
        for task in evaluation.per_task
    }


def _facts(trained: dict) -> dict:
    """What the fine-tuned policy cost, and how large it is."""
    weights = checkpoint.read_weights(trained["checkpoint"])
    return {
        "steps": trained["steps"],
        "cpu_s": round(trained["cpu_s"], 1),
        "parameters": sum(values.numel() for values in weights.values()),
    }


def _path(name: str) -> Path:
    return RESULTS / f"{name}.json"


def _result(
    seed: int, before: Evaluation | None, after: Evaluation, trained: dict, cost: _Cost
) -> dict:
    return {
        "seed": seed,
        "commit": record.commit(),
        "before": before.overall.rate if before else None,
        "after": after.overall.rate,
        "wall_s": round(cost.wall_s, 1),
        "cpu_s": round(cost.cpu_s, 1),
        "rl_wall_s": round(trained.get("wall_s", 0.0), 1),
        "episodes": trained["validations"][-1]["episodes"] if trained else 0,
        "bounds_before": [before.overall.low, before.overall.high] if before else None,
        "bounds_after": [after.overall.low, after.overall.high],
        **{
            f"falls_{when}": evaluation.mean_metrics()["fall"]
            for when, evaluation in (("before", before), ("after", after))
            if evaluation and "fall" in evaluation.mean_metrics()
        },
        "by_task": {
            task: {
                "before": before.per_task[task].successes if before else None,
                "after": rate.successes,
                "episodes": rate.episodes,
                "bounds_after": [rate.low, rate.high],
            }
            for task, rate in after.per_task.items()
        },
        "validations": trained.get("validations", []),
    }


def _protocol(experiment: Experiment, folder: Path) -> str:
    """The file of the experiment's protocol, with its own tasks if it has some."""
    if experiment.tasks is None:
        return experiment.protocol
    written = folder / "protocol.yaml"
    protocol = read_yaml(experiment.protocol) | {"tasks": list(experiment.tasks)}
    atomic.write_text(written, yaml.safe_dump(protocol, sort_keys=False))
    return str(written)


def dataset(name: str, recordings: Recordings) -> tuple[Path, _Cost]:
    """Record, convert and publish demonstrations under `.rrf/headline/`; existing ones are kept.

    Returns:
        The dataset, and what all of it took.
    """
    from rrf.data.conversion.convert import convert
    from rrf.data.conversion.dataset_cfg import load_dataset_cfg
    from rrf.data.transport.publish import publish
    from rrf.data.validation.validate import validate

    root = workspace.state() / "headline" / f"{name}-data"
    seconds = root / "seconds.json"
    if seconds.is_file():
        return root / "published", _Cost(*json.loads(seconds.read_text()))
    with Stopwatch() as watch:
        cameras = recordings.cameras
        words = ["--env", recordings.env, "--action-repeat", str(recordings.action_repeat)]
        words += ["--tasks", ",".join(recordings.tasks), "--episodes", str(recordings.episodes)]
        words += ["--max-steps", str(recordings.max_steps), "--cameras", ",".join(cameras)]
        words += [word for std in recordings.noise for word in ("--noise", str(std))]
        if recordings.demonstrations:
            words += ["--demonstrations", str(recordings.demonstrations)]
        if recordings.trials:
            words += ["--trials", str(recordings.trials)]
        run_rrf("data", "collect", *words, "--out", str(root / "raw"))
        cfg = load_dataset_cfg(f"{recordings.env}-demo").replace(
            name=name, cameras={camera: f"obs/{camera}_image" for camera in cameras}
        )
        if recordings.demonstrations:
            # Where an initial state differs in what no camera shows, repeated episodes look the
            # same. Nothing is held out of these datasets.
            severity = cfg.checks.severity | {"leakage": "warn"}
            cfg = cfg.replace(checks=cfg.checks.replace(severity=severity))
        convert(cfg, root / "raw", root / "converted")
        report = validate(name, root / "converted", cfg.checks, root / "report")
        assert report.passed, f"see {root / 'report'}"
        publish(root / "converted", root / "report", root / "published")
    cost = _Cost(watch.wall_s, watch.cpu_s)
    atomic.write_json(seconds, cost)
    return root / "published", cost


def _train(costs: list[_Cost], *words: typing.Any) -> dict:
    """`train`, whose cost is appended; of a resumed run, that of all its calls."""
    with Stopwatch() as watch:
        result = train(*words)
    costs.append(_later(result, watch))
    return result


def _evaluate(
    costs: list[_Cost], checkpoint: str, protocol: str, out: Path, num_videos: int = 0
) -> Evaluation:
    """What `rrf eval` finds, and found before if the experiment is resumed; its cost is
    appended."""
    with Stopwatch() as watch:
        if not (out / FILE_NAME).is_file():
            words = ["--protocol", protocol, "--out", str(out), "--workers", "2"]
            run_rrf("eval", checkpoint, *words, "--num-videos", str(num_videos))
        report = Evaluation.load(out)
    costs.append(_later(report.timings, watch))
    return report


def _later(facts: dict, watch: Stopwatch) -> _Cost:
    """What a command cost: by its own account, or as seen from here if that is more."""
    return _Cost(max(facts["wall_s"], watch.wall_s), max(facts["cpu_s"], watch.cpu_s))
