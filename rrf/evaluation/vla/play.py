"""Show a policy that sees images at work: one episode as a video."""

import math
import typing
from collections.abc import Mapping
from pathlib import Path

from rrf.data.dataset.history import Past
from rrf.envs import ENVS
from rrf.envs.rendering.video import border, caption, write_video
from rrf.evaluation.candidate import Candidate
from rrf.evaluation.protocols.base import Resources

if typing.TYPE_CHECKING:
    from rrf.evaluation.vla.protocol import ProtocolCfg


def played_protocol(
    owner: "type[ProtocolCfg]", candidate: Candidate, seed: int, options: Mapping[str, typing.Any]
) -> "ProtocolCfg":
    """The protocol of one episode, as the options of `rrf play` want it.

    It follows the protocol file that is given. Without one, whole chunks are executed in the
    simulator of the training, and an action is held for as long as there.

    Args:
        owner: The class of the protocol.
        candidate: The policy.
        seed: Seed of the initial state.
        options: A value for each of `ProtocolCfg.play_options`.

    Raises:
        ValueError: If there is neither a protocol nor a task, or the protocol is for other
            policies.
    """
    base = _base(owner, candidate, options)
    steps = options["max_episode_steps"]
    return base.replace(
        name="play",
        env=options["env"] or base.env,
        tasks=[options["task"] or base.tasks[0]],
        seed=seed,
        first_index=options["index"],
        episodes_per_task=1,
        max_episode_steps=base.max_episode_steps if steps is None else steps,
        used_seeds={},  # a policy may be watched on the initial states of its training
        num_slots=1,
    )


def _base(
    owner: "type[ProtocolCfg]", candidate: Candidate, options: Mapping[str, typing.Any]
) -> "ProtocolCfg":
    from rrf.evaluation.protocols.files import load_protocol

    if options["protocol"] is not None:
        given = load_protocol(options["protocol"])
        given.check_kind(candidate.kind, candidate.label)
        assert isinstance(given, owner)
        return given
    if options["task"] is None:
        raise ValueError(
            f"{candidate.label} is a VLA policy; name its task, e.g. --task drawer-open-v3, or a "
            "protocol with --protocol"
        )
    policy = candidate.config["policy"]
    past, execute = Past.of(policy), policy["chunk_length"]
    if past:  # as much of a chunk as lets the policy see its frames
        execute = math.gcd(past.stride, execute)
    trained_in = owner.simulator_of(candidate.config)
    env = options["env"] or trained_in or owner.env
    usual = ENVS.get(env)().to_dict()
    training = candidate.config["env"] if env == trained_in else usual
    return owner(
        name="play",
        env=env,
        tasks=[options["task"]],
        seed=0,
        execute_steps=execute,
        action_repeat=training.get("action_repeat", usual["action_repeat"]),
        image_size=policy["image_size"][0],
        cameras=policy["cameras"],
        used_seeds={},
    )


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
