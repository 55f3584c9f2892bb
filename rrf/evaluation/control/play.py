"""Show a state-based policy at work: as numbers, as a video, or in MuJoCo's window; and make videos
of a few evaluated episodes. Their blocks are run and drawn again, which gives bit-identical
episodes.
"""

import contextlib
import io
import math
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tensordict import TensorDict

from rrf.config import first_error
from rrf.envs.configs import ControlEnvCfg
from rrf.envs.control_env import ControlEnv, Interface
from rrf.envs.rendering.film import EpisodeFilm, record
from rrf.envs.rendering.video import caption
from rrf.envs.rendering.viewer import PassiveViewer, require_display
from rrf.envs.wrappers.wrapper import ControlEnvWrapper
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.control.evaluate import place_of, run_block
from rrf.evaluation.reports.videos import save_videos
from rrf.evaluation.results import EpisodeResult
from rrf.policies.control.actor_critic import ControlPolicy
from rrf.runners.checkpoints.checkpoint import CONFIG
from rrf.runners.checkpoints.control import load_control_policy, require_same_shapes
from rrf.runners.control.episode_statistics import EpisodeStatistics

_SECONDS = 20.0
_MAX_FILMED, _MAX_FPS = 9, 25
_IMAGE_SIZE = (180, 240)  # of evaluated episodes: height, width
_JPEG_QUALITY = 92


def play(
    candidate: Candidate,
    video: Path | None,
    seed: int,
    num_envs: int,
    viewer: bool,
    steps: int | None,
    seconds: float | None,
    say: Callable[[str], None],
) -> None:
    """Play a policy greedily, in the environment it was trained in.

    Args:
        candidate: The policy.
        video: The file to write.
        seed: Seed of the environments.
        num_envs: Environments side by side; a video shows at most nine.
        viewer: Show the first environment in a window, until the window is closed or the time is
            over.
        steps: Steps of every environment; None to use `seconds`.
        seconds: Simulated seconds; 20 if neither `steps` nor `seconds` is given.
        say: Called with each line of text for the user.

    Raises:
        ValueError: For options that exclude each other, a missing display, or an environment that
            cannot be drawn.
    """
    if steps is not None and seconds is not None:
        raise ValueError("--steps and --seconds both set the length; give only one of them")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(f"--seconds is {seconds:g}, allowed: more than 0")
    if viewer and video:
        raise ValueError("--viewer and --video exclude each other; give only one of them")
    if viewer:
        require_display()
    policy, interface = load_control_policy(candidate.checkpoint)
    num_steps = steps or max(1, round((seconds or _SECONDS) / interface.step_dt))
    with _environment(_environment_cfg(candidate), 1 if viewer else num_envs, seed) as bare:
        require_same_shapes(interface, bare.interface, candidate.label)
        env: typing.Any = WatchedEnv(bare)
        if video:
            fps = max(1, min(_MAX_FPS, round(1 / interface.step_dt)))
            record(env, policy, num_steps, range(min(num_envs, _MAX_FILMED)), video, fps)
        else:
            with _window(env) if viewer else contextlib.nullcontext() as window:
                _act(env, policy, num_steps, window)
        say(f"{candidate.label}: {env.summary()}")
        if video:
            say(f"video {video}")


def _environment_cfg(candidate: Candidate) -> ControlEnvCfg:
    """The environment that a policy was trained in.

    Raises:
        ValueError: If its config cannot be read here.
    """
    try:
        return ControlEnvCfg.from_dict(candidate.config["env"])
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{candidate.checkpoint}/{CONFIG} describes an environment that is not known here "
            f"({first_error(error)}); import the module that registers it with --import MODULE"
        ) from error


@contextlib.contextmanager
def _environment(cfg: ControlEnvCfg, num_envs: int, seed: int) -> Iterator[ControlEnv]:
    env = cfg.drawable().replace(num_envs=num_envs).build(seed=seed, device="cpu")
    try:
        yield env
    finally:
        env.close()


@contextlib.contextmanager
def _window(env: ControlEnv) -> Iterator[PassiveViewer]:
    window = PassiveViewer(env)
    try:
        yield window
    finally:
        window.close()


_MAX_EPISODES = 10_000
_SUCCESS = "rollout/success"


class Window(typing.Protocol):
    """Shows an environment; `rrf.envs.rendering.viewer.PassiveViewer` is one."""

    @property
    def is_open(self) -> bool: ...

    def show(self) -> None: ...


class WatchedEnv(ControlEnvWrapper):
    """An environment that records what happens in it, no matter who steps it."""

    def __init__(self, env: ControlEnv):
        super().__init__(env)
        self.statistics = EpisodeStatistics(env.num_envs, _MAX_EPISODES)
        self.num_steps = 0
        self._rewards = 0.0
        self._log: dict[str, list[float]] = {}

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """See `ControlEnv.step`."""
        observations, rewards, dones, extras = self.env.step(actions)
        self.statistics.observe(rewards, dones.bool())
        self.num_steps += 1
        self._rewards += float(rewards.sum())
        for name, value in extras.get("log", {}).items():
            self._log.setdefault(name, []).append(float(value))
        return observations, rewards, dones, extras

    def summary(self) -> str:
        """A one-line summary; of the environment's own metrics, success and those named "error"."""
        simulated_s = self.num_steps * self.interface.step_dt
        parts = [f"{self.num_envs} environments, {self.num_steps} steps ({simulated_s:.1f} s)"]
        metrics = self.statistics.metrics()
        if metrics:
            parts.append(
                f"{self.statistics.num_episodes} episodes ended, return "
                f"{metrics['rollout/return']:.4g}, length {metrics['rollout/length']:.0f}"
            )
        else:
            parts.append("no episode ended")
        parts.append(f"reward per step {self._rewards / (self.num_steps * self.num_envs):.4g}")
        for name, share in self._log.items():
            if name.startswith(_SUCCESS):
                shown = name.removeprefix("rollout/").replace("_", " ")
                parts.append(f"{shown} {sum(share) / len(share):.0%}")
        errors = {name: values for name, values in self._log.items() if "error" in name}
        parts += [f"{name} {sum(values) / len(values):.3g}" for name, values in errors.items()]
        return ", ".join(parts)


def _act(env: ControlEnv, policy: ControlPolicy, num_steps: int, window: Window | None) -> None:
    """Act greedily for `num_steps` steps, or until the window is closed."""
    policy.reset()
    observations = env.get_observations()
    for _ in range(num_steps):
        observations, _, dones, _ = env.step(policy.act(observations))
        policy.reset(dones.bool())
        if window is not None:
            window.show()
            if not window.is_open:
                return


if typing.TYPE_CHECKING:
    from rrf.evaluation.control.configs import ControlProtocolCfg


def film_episodes(
    policy: ControlPolicy,
    interface: Interface,
    protocol: "ControlProtocolCfg",
    episodes: Sequence[EpisodeResult],
    folder: str | Path,
) -> list[dict]:
    """Write `<folder>/videos/`, an mp4 and a poster per episode.

    Returns:
        The entries of `Evaluation.videos`, in the order of `episodes`.

    Raises:
        ValueError: For an environment that cannot be drawn, or an episode that differs from the
            recorded one because the environment has changed.
    """
    places = {place_of(protocol, e.initial_state): e for e in episodes}
    entries = {}
    for block in sorted({block for block, _ in places}):
        rows = {row: episode for (b, row), episode in places.items() if b == block}
        film = _Film(rows, round(1 / interface.step_dt))
        try:
            for episode in run_block(policy, interface, protocol, block, film.observe):
                _check_as_recorded(episode, rows.values())
        finally:
            film.close()
        for row, episode in rows.items():  # one at a time: a minute of frames takes much memory
            (entry,) = save_videos(folder, [episode], [film.frames(row)], film.fps)
            entries[episode.initial_state] = entry
    return [entries[episode.initial_state] for episode in episodes]


class _Film:
    """Frames of some environments, kept as JPEG until `frames` decodes them."""

    def __init__(self, rows: dict[int, EpisodeResult], steps_per_s: int):
        self._rows, self._drawer = rows, None
        self._every = -(-steps_per_s // _MAX_FPS)
        self.fps = max(1, round(steps_per_s / self._every))
        self._pictures: dict[int, list[bytes]] = {row: [] for row in rows}

    def observe(self, env: ControlEnv, step: int) -> None:
        """Draw the running episodes if a frame is due at this step."""
        running = [row for row, episode in self._rows.items() if step < episode.steps]
        if step % self._every or not running:
            return
        if self._drawer is None:
            self._drawer = EpisodeFilm(env, list(self._rows), _IMAGE_SIZE)
        (images,) = self._drawer.images(running).values()
        for row, image in zip(running, images, strict=True):
            text = f"{self._rows[row].task}  {step * env.interface.step_dt:.1f} s"
            self._pictures[row].append(_compressed(caption(image, text)))

    def frames(self, row: int) -> np.ndarray:
        """uint8 [T, H, W, 3]."""
        return np.stack([np.asarray(Image.open(io.BytesIO(p))) for p in self._pictures[row]])

    def close(self) -> None:
        if self._drawer is not None:
            self._drawer.close()


def _compressed(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=_JPEG_QUALITY)
    return file.getvalue()


def _check_as_recorded(episode: EpisodeResult, recorded: Iterable[EpisodeResult]) -> None:
    for other in recorded:
        if other.initial_state == episode.initial_state and other != episode:
            raise ValueError(
                f"{episode.task}, episode {episode.index}, differs from the recorded one: now "
                f"{episode.steps} steps and return {episode.episode_return}, before {other.steps} "
                f"and {other.episode_return}"
            )
