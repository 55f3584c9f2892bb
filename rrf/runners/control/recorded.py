"""Recorded transitions in the terms of a policy, checked against the task that it acts in.

Legend: N transitions, D state dimension, A action dimension.
"""

import numpy as np

from rrf.data.dataset.transitions import RecordedTransitions
from rrf.envs.control_env import ControlEnv


def require_widths(
    data: RecordedTransitions, dataset: str, env: ControlEnv, num_states: int
) -> None:
    """Check that states and actions have as many dimensions as a task's.

    Args:
        dataset: Its name, for messages.
        num_states: State dimensions that the policy reads.

    Raises:
        ValueError: If they have not.
    """
    task = env.interface.task or "the environment"
    for what, recorded, wanted in (
        ("state dimensions", data.observations.shape[1], num_states),
        ("action dimensions", data.actions.shape[1], env.num_actions),
    ):
        if recorded != wanted:
            raise ValueError(
                f"the dataset {dataset} has {recorded} {what}, but {task} has {wanted}; "
                "set env.task to the task that was recorded"
            )


def actions_of(data: RecordedTransitions, dataset: str, env: ControlEnv) -> np.ndarray:
    """The recorded actions as a policy gives them, float32 [N, A] within [-1, 1].

    Args:
        dataset: Its name, for messages.

    Raises:
        ValueError: For an action that the task does not allow.
    """
    to_policy = getattr(env, "to_policy", None)
    actions = to_policy(data.actions) if to_policy else data.actions
    excess = float(np.abs(actions).max())
    if excess > 1 + 1e-3:
        task = env.interface.task or "the environment"
        row, dimension = np.unravel_index(np.abs(actions).argmax(), actions.shape)
        raise ValueError(
            f"action {dimension} of transition {row} of {dataset} is "
            f"{data.actions[row, dimension]:g}, which is {excess:g} times what {task} "
            "allows; convert the dataset's actions to the units of the task"
        )
    return actions.clip(-1, 1)
