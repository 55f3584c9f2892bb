"""How soon the alarm for images comes when a scene has changed, and how often it is false.

    python -m benchmarks.image_drift CHECKPOINT DATASET [--episodes 20]

A policy plays the tasks of configs/protocols/metaworld-robust.yaml; what it was shown is compared
with the images of the dataset. One robot works in one changed scene (a task, a kind of change, one
of ten pictures) and sees it in every episode; the robots of the scenes as trained and with other
starts play ten times as many episodes as were played, in their order again and again. Rows are
descriptions of images: the mean colours of 9 parts, which servers use, and of 4 and 16; each also
with half of the limit.
"""

import argparse
import collections
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rrf.data.dataset import seen_images
from rrf.data.dataset.opening import open_dataset
from rrf.envs.foreign.child_path.rrf_child.shifts import NUM_SCENES, PICTURES, split
from rrf.evaluation.candidate import candidate_at
from rrf.evaluation.protocols.base import Resources
from rrf.evaluation.protocols.files import load_protocol
from rrf.evaluation.vla import evaluate
from rrf.evaluation.vla.configs import ProtocolCfg
from rrf.serving.drift import Drift

PROTOCOL = "configs/protocols/metaworld-robust.yaml"
Colors = Callable[[np.ndarray], np.ndarray]
_seen: dict[tuple[str, int], list[np.ndarray]] = collections.defaultdict(list)


def parts(number: int) -> Colors:
    """The mean colours of number x number parts of an image."""

    def colors(image: np.ndarray) -> np.ndarray:
        rows = [part for strip in np.array_split(image, number) for part in
                np.array_split(strip, number, axis=1)]  # fmt: skip
        return np.concatenate([part.mean(axis=(0, 1)) for part in rows])

    return colors


class Watched:
    """Executes as another rule does, and keeps what it was shown."""

    def __init__(self, rule):
        self._rule = rule

    def act(self, episodes):
        """See `rrf.evaluation.vla.execution`."""
        for episode in episodes:
            [image] = [np.array(i) for i in episode.observation.images.values()]
            shown = image.reshape(image.shape[-3:])
            _seen[episode.state.task, episode.state.index].append(shown)
        return self._rule.act(episodes)


def play(checkpoint: Path, episodes: int) -> dict[tuple[str, int], bool]:
    """Play all episodes; fills `_seen`."""
    cfg = load_protocol(PROTOCOL)
    assert isinstance(cfg, ProtocolCfg)
    tasks = [t for t in cfg.tasks if split(t)[1] in ("", "start", *PICTURES)]
    cfg = cfg.replace(tasks=tasks, groups={}, episodes_per_task=episodes)
    plain = evaluate._evaluate
    evaluate._evaluate = lambda policy, rule, *rest: plain(policy, Watched(rule), *rest)
    played = cfg.build().evaluate(candidate_at(checkpoint, "policy"), Resources())
    return {(e.task, e.index): e.success for e in played.episodes}


def alarm_after(shares: np.ndarray) -> int | None:
    """Episodes until the alarm; None without one."""
    drift = Drift(np.zeros(1), np.ones(1))
    raised = (number for number, share in enumerate(shares, 1) if drift.add(np.array([share])))
    return next(raised, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--episodes", type=int, default=20)
    options = parser.parse_args()
    solved = play(options.checkpoint, options.episodes)
    reader = open_dataset(options.dataset, 1)
    bounds = reader.bounds
    chosen = np.unique(np.linspace(0, len(bounds) - 2, 100).astype(int))
    frames = [
        np.unique(np.linspace(bounds[n], bounds[n + 1] - 1, 10).astype(np.int64)) for n in chosen
    ]
    [images] = zip(*(reader.batch(f).observation.images.values() for f in frames), strict=True)
    tasks = sorted({split(task)[0] for task, _ in solved})
    kinds = {"9 parts": seen_images.colors, "4 parts": parts(2), "16 parts": parts(4)}
    for name, factor in itertools.product(kinds, (1.0, 0.5)):
        colors = kinds[name]
        seen = seen_images.fitted([np.stack([colors(i) for i in episode]) for episode in images])
        share = {
            key: float(
                (seen.distance(np.stack([colors(i) for i in shown])) > factor * seen.limit).mean()
            )
            for key, shown in _seen.items()
        }
        print(name if factor == 1 else f"{name}, half of the limit")
        for kind in ("", "start", *PICTURES):
            mine = [f"{task}@{kind}" if kind else task for task in tasks]
            played = {key: solved[key] for key in solved if key[0] in mine}
            success = f"{sum(played.values())} of {len(played)} solved"
            step = NUM_SCENES if kind in PICTURES else 1  # episodes of one picture
            robots = [
                [share[task, number] for number in range(first, options.episodes, step)]
                for task in mine
                for first in range(min(step, options.episodes))
            ]
            repeats = 20 if kind in PICTURES else 10
            alarms = [alarm_after(np.tile(robot, repeats)) for robot in robots]
            soon = [alarm for alarm in alarms if alarm]
            when = f", after {np.median(soon):g} episodes, at most {max(soon)}" if soon else ""
            mean = np.mean([np.mean(robot) for robot in robots])
            print(f"  {kind or 'as trained'}: {success}, {100 * mean:.1f} % of the frames beyond, "
                  f"alarms for {len(soon)} of {len(robots)} robots{when}")  # fmt: skip


if __name__ == "__main__":
    main()
