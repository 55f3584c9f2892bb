"""Instructions in other words, for tasks with `@wording` and `@other-wording`: two sets, so that
one can be trained on and the other one tested.
"""

import typing

from rrf.envs.foreign.child_path.rrf_child.shifts import random_of, split

if typing.TYPE_CHECKING:
    from rrf.envs.vec_env import InitialState

WORDINGS: dict[str, str] = {
    "wording": "the instruction in other words",
    "other-wording": "the instruction in words of a second set",
}
"""What stands behind the @ of a task -> what differs."""
_FRAMES: dict[str, tuple[str, ...]] = {
    "wording": ("{}", "please {}", "robot, {} for me"),
    "other-wording": ("{} now", "could you {}", "your job is this: {}"),
}
_SYNONYMS: dict[str, tuple[tuple[str, str], ...]] = {
    "wording": (
        ("bypass a wall", "go around a wall"),
        ("pick up", "take"),
        ("pick and place", "take and put"),
        ("pick", "take"),
        ("grasp", "grab"),
        ("press", "push down"),
        ("push", "shove"),
        ("pull", "draw"),
        ("open", "pull open"),
        ("close", "shut"),
        ("rotate", "turn"),
        ("slide", "push"),
        ("place", "put"),
        ("insert", "put"),
        ("reach", "go to"),
        ("sweep", "wipe"),
        ("get", "bring"),
        ("lift", "pick up"),
        ("put", "place"),
    ),
    "other-wording": (
        ("bypass a wall", "avoid a wall"),
        ("pick up", "lift"),
        ("pick and place", "lift and set down"),
        ("pick", "lift"),
        ("grasp", "seize"),
        ("press", "hold down"),
        ("push", "nudge"),
        ("pull", "tug"),
        ("open", "slide open"),
        ("close", "push shut"),
        ("rotate", "twist"),
        ("slide", "move"),
        ("place", "set"),
        ("insert", "stick"),
        ("reach", "move to"),
        ("sweep", "brush"),
        ("get", "fetch"),
        ("lift", "raise"),
        ("put", "set"),
    ),
}


def wording(state: "InitialState", instruction: str) -> str:
    """The instruction as the initial state words it."""
    shift = split(state.task)[1]
    if shift not in _FRAMES:
        return instruction
    random = random_of(state.task, state.seed, state.index)
    words = instruction[0].lower() + instruction[1:]
    if random.random() < 0.75:
        old, new = next((pair for pair in _SYNONYMS[shift] if pair[0] in words), ("", ""))
        words = words.replace(old, new, 1)
    return str(random.choice(_FRAMES[shift])).format(words)
