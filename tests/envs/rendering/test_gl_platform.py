"""The OpenGL backend a process is bound to."""

import os

import pytest

from rrf.envs.rendering.gl_platform import (
    check_unbound,
    unbound_environment,
    variables_of_robosuite,
)


def test_a_process_bound_to_one_backend_refuses_another(monkeypatch):
    monkeypatch.setenv("PYOPENGL_PLATFORM", "osmesa")
    check_unbound("osmesa")
    with pytest.raises(ValueError, match="already uses OpenGL through osmesa; egl needs its own"):
        check_unbound("egl")


@pytest.mark.parametrize("value", [None, ""])
def test_a_process_not_bound_yet_takes_any_backend(monkeypatch, value):
    monkeypatch.delenv("PYOPENGL_PLATFORM", raising=False)
    if value is not None:
        monkeypatch.setenv("PYOPENGL_PLATFORM", value)
    check_unbound("egl")


def test_a_child_process_is_not_bound_and_otherwise_sees_the_same(monkeypatch):
    bound = ("PYOPENGL_PLATFORM", "MUJOCO_GL")
    for name in bound:
        monkeypatch.setenv(name, "egl")
    same = {name: value for name, value in os.environ.items() if name not in bound}
    assert unbound_environment() == same
    assert len(same) == len(os.environ) - 2


def test_who_hides_all_gpus_lets_robosuite_draw_on_the_first_device(monkeypatch):
    usual = {"PYOPENGL_PLATFORM": "egl", "MUJOCO_GL": "egl"}
    for name in ("CUDA_VISIBLE_DEVICES", "MUJOCO_EGL_DEVICE_ID"):
        monkeypatch.delenv(name, raising=False)
    assert variables_of_robosuite("egl") == usual
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert variables_of_robosuite("egl") == usual
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert variables_of_robosuite("egl") == usual | {"MUJOCO_EGL_DEVICE_ID": "0"}
    monkeypatch.setenv("MUJOCO_EGL_DEVICE_ID", "2")
    assert variables_of_robosuite("egl") == usual
