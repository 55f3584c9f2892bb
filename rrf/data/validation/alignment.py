"""Was the state of a frame recorded before the frame's action, or after it?

A recorder that steps first and writes then gives each action the state it led to. A policy learns
to read the answer off its observation, which it will not find there. It shows in what explains the
step from one state to the next: of an aligned dataset the action of the earlier frame, of a late
one that of the later frame.

    d_t = s_t - s_{t-1}    regressed on s_{t-1}, s_{t-2} and a_{t-1}: unexplained share `before`
                           regressed on s_{t-1}, s_{t-2} and a_t:     unexplained share `after`

Both are means over the dimensions of the state that move, by linear least squares. `after` well
below `before` means late, if `before` leaves anything to explain. Measured on seven datasets
(Bridge, GR1, Meta-World, four of Pendulum), after / before is 1.8 to 3.8 as recorded. With states
moved by one frame it is 0.2 to 0.65, but 1.1 for Meta-World: a robot that follows its action over
several frames hides one of them. A policy without noise whose actions are a linear function of the
state can look late where contacts make the linear model poor.

Legend: N frames, D state dimensions, A action dimensions.
"""

import numpy as np

from rrf.data.schema import ACTION, STATE
from rrf.data.validation.checks import Finding
from rrf.data.validation.tables import Tables

# Formats whose layout has one more observation than actions, or both of every transition. Of their
# `infos` it says nothing, which the conversion's record has as "unsettled".
SETTLED = ("d4rl", "maniskill", "minari")
_MAX_FRAMES = 20_000  # that are looked at
_FRAMES_PER_COLUMN = 4  # fewer prove nothing
_EXPLAINED = 0.03  # of a step; as little left unexplained is as good as nothing
_FLOOR = 1e-4  # rounding of float32
_IS_MOVING = 1e-6  # of the state's standard deviation


def alignment_findings(tables: Tables, max_ratio: float) -> list[Finding]:
    """The state, if the action of its frame explains it too well.

    Args:
        tables: The dataset.
        max_ratio: `after` / `before` from which on the state is not late.
    """
    unexplained = unexplained_steps(
        tables.vectors[STATE], tables.vectors[ACTION], tables.frames["episode_index"].to_numpy()
    )
    if unexplained is None:
        return []
    before, after = unexplained
    if before < _EXPLAINED or after >= max_ratio * before:
        return []
    value = (
        f"the action of a frame explains the step that led to its state ({after:.0%} remain "
        f"unexplained), the action of the frame before does not ({before:.0%}): the state was "
        "probably recorded after the action; if so, write into the config after_action: [state]"
    )
    return [Finding(STATE, value)]


def unexplained_steps(
    state_nd: np.ndarray, action_na: np.ndarray, episode_n: np.ndarray
) -> tuple[float, float] | None:
    """The shares `before` and `after` of the module's docstring; None if there are too few frames
    or nothing moves.
    """
    state_nd = state_nd[:_MAX_FRAMES].astype(np.float64)
    action_na = action_na[:_MAX_FRAMES].astype(np.float64)
    episode_n = episode_n[:_MAX_FRAMES]
    row = np.flatnonzero(episode_n[2:] == episode_n[:-2]) + 2
    values = np.concatenate([state_nd, action_na], axis=1)
    row = row[np.isfinite(values[row] + values[row - 1] + values[row - 2]).all(axis=1)]
    if not len(row):
        return None
    step_nd = state_nd[row] - state_nd[row - 1]
    step_nd = step_nd[:, step_nd.std(axis=0) > _IS_MOVING * state_nd.std(axis=0)]
    past = np.concatenate([state_nd[row - 1], state_nd[row - 2]], axis=1)
    if step_nd.shape[1] == 0 or len(row) < _FRAMES_PER_COLUMN * (
        past.shape[1] + action_na.shape[1]
    ):
        return None
    before = _unexplained(step_nd, np.concatenate([past, action_na[row - 1]], axis=1))
    after = _unexplained(step_nd, np.concatenate([past, action_na[row]], axis=1))
    return before, after


def _unexplained(target_nd: np.ndarray, known_nk: np.ndarray) -> float:
    """The share of the variance that a linear function leaves, mean over dimensions."""
    target_nd = target_nd - target_nd.mean(axis=0)
    known_nk = known_nk - known_nk.mean(axis=0)
    spread_k = known_nk.std(axis=0)
    known_nk = known_nk[:, spread_k > 0] / spread_k[spread_k > 0]
    weights = np.linalg.lstsq(known_nk, target_nd, rcond=1e-8)[0]
    shares_d = (target_nd - known_nk @ weights).var(axis=0) / target_nd.var(axis=0)
    return float(np.maximum(shares_d, _FLOOR).mean())
