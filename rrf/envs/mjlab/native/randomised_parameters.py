"""Parameters of the model that events set for each environment: masses, frictions, gains, ...

Events write tensors [N, ...] (`NativeModel.expanded`). Before the next step, the changed values are
written into the models that are stepped. From then on every environment has its own model.
"""

# pyright: reportAttributeAccessIssue=false
# mujoco's compiled modules come without stubs.

from collections.abc import Iterable

import mujoco
import numpy as np
import torch
from mjlab.managers.event_manager import _DERIVED_FIELDS, RecomputeLevel

from rrf.envs.mjlab.native.stepping import Stepper
from rrf.envs.mjlab.native.views import NativeModel

_MIDPHASE = int(mujoco.mjtDisableBit.mjDSBL_MIDPHASE)
_DERIVED = {name for names in _DERIVED_FIELDS.values() for name in names}
_SAME_FRAME = {
    "body_ipos": "body_sameframe",
    "body_iquat": "body_sameframe",
    "geom_pos": "geom_sameframe",
    "geom_quat": "geom_sameframe",
    "site_pos": "site_sameframe",
    "site_quat": "site_sameframe",
}  # the compiler's shortcuts for coinciding frames, which are no longer valid
_LOOKS = ("mat_", "tex_", "geom_matid")  # visuals, which the stepped model does not have
_IN_TREES = {"geom_pos", "geom_quat", "geom_size"}  # the boxes around geoms are compiled into trees


class RandomisedParameters:
    """Keeps the models of all environments up to date with what events write."""

    def __init__(self, view: NativeModel, stepper: Stepper):
        self._view, self._stepper = view, stepper
        self._pushed: dict[str, tuple[int, torch.Tensor]] = {}  # tensor's version and values

    def watch(self, fields: Iterable[str]) -> None:
        """Let events set these fields.

        Fields that MuJoCo derives from others are only read back, and visuals stay in the view.
        """
        for name in fields:
            self._view.expand(name)
            if name in _IN_TREES:
                self._stepper.physics.model.opt.disableflags |= _MIDPHASE
            if name not in _DERIVED and not name.startswith(_LOOKS):
                tensor = self._view.expanded[name]
                self._pushed[name] = (tensor._version, tensor.clone())

    @property
    def have_derived(self) -> bool:
        """Whether MuJoCo derives any of the fields from the ones that events set."""
        return any(name in _DERIVED for name in self._view.expanded)

    def push(self) -> list[int]:
        """Write the changed values into the models; returns the environments that changed."""
        changed: set[int] = set()
        for name, (version, last) in self._pushed.items():
            tensor = self._view.expanded[name]
            if tensor._version == version:
                continue
            rows = (tensor != last).flatten(1).any(1).nonzero().flatten().tolist()
            if rows:
                self._stepper.give_each_its_own_model()
            for i in rows:
                _set(self._stepper.models[i], name, tensor[i].numpy())
            self._pushed[name] = (tensor._version, tensor.clone())
            changed.update(rows)
        return sorted(changed)

    def recompute(self, rows: Iterable[int], level: RecomputeLevel) -> None:
        """Let MuJoCo recompute the fields that it derives, and read back those that belong to
        `level`.
        """
        for i in rows:
            model = self._stepper.models[i]
            mujoco.mj_setConst(model, mujoco.MjData(model))  # at the initial state
            for name in _DERIVED_FIELDS[level]:
                value = np.asarray(getattr(model, name))
                self._view.expanded[name][i] = torch.from_numpy(value)


def _set(model: mujoco.MjModel, name: str, values: np.ndarray) -> None:
    field = getattr(model, name)
    field[...] = values.reshape(field.shape)
    if name in _SAME_FRAME:
        getattr(model, _SAME_FRAME[name])[...] = int(mujoco.mjtSameFrame.mjSAMEFRAME_NONE)
