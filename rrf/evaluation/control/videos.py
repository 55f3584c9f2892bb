"""Videos of a few evaluated episodes of state-based control.

Their blocks are run and drawn again, which gives bit-identical episodes.
"""

import io
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from rrf.envs.control_env import ControlEnv, Interface
from rrf.envs.rendering.film import EpisodeFilm
from rrf.envs.rendering.video import caption
from rrf.evaluation.control.evaluate import place_of, run_block
from rrf.evaluation.reports.videos import save_videos
from rrf.evaluation.results import EpisodeResult
from rrf.policies.control.actor_critic import ControlPolicy

if typing.TYPE_CHECKING:
    from rrf.evaluation.control.configs import ControlProtocolCfg

_IMAGE_SIZE = (180, 240)  # height, width
_MAX_FPS = 25
_JPEG_QUALITY = 92


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
