"""Show a policy that sees images at work: one episode as a video."""

import typing
from pathlib import Path

from rrf.envs.rendering.video import border, caption, write_video
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.protocols.base import Resources

if typing.TYPE_CHECKING:
    from rrf.evaluation.vla.protocol import ProtocolCfg


def film_first(
    candidate: Candidate, protocol: "ProtocolCfg", video: Path, size: int, resources: Resources
) -> str:
    """Play the first episode of a protocol and write a video of it.

    Args:
        candidate: The policy.
        protocol: The protocol to play.
        video: The file to write.
        size: Height and width of the video in pixels.
        resources: Worker processes and renderer to use.

    Returns:
        One line of text that says how the episode ended.
    """
    episodes = protocol.evaluate(candidate, resources).episodes[:1]
    episode, (frames, fps) = episodes[0], protocol.pictures(episodes, size, resources)
    outcome = "solved" if episode.success else "not solved"
    shown = [
        caption(
            border(frame, episode.success if step == episode.steps else None),
            f"{episode.task}  {episode.index}  step {step}",
        )
        for step, frame in enumerate(frames[0])
    ]
    write_video(video, shown + shown[-1:] * fps, fps)
    return (
        f"{episode.task}, initial state {episode.index}: {outcome} after {episode.steps} steps; "
        f"{video}"
    )
