"""Simulators draw what the versions drew that their published data are of."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import simulator_pictures
from rrf.envs import ENVS
from rrf.envs.calvin.configs import CalvinCfg
from rrf.envs.foreign import interpreters
from rrf.envs.foreign.configs import ForeignVecEnvCfg
from rrf.envs.libero.configs import LiberoCfg
from rrf.envs.maniskill.configs import ManiskillCfg
from rrf.envs.robosuite.configs import RobosuiteCfg
from rrf.evaluation.protocols.files import load_protocol
from rrf.extras import NotSetUpError
from tests.envs.foreign import real

ROOT = Path(__file__).parents[3]
FOREIGN = {
    name: cfg for name in ENVS if issubclass(cfg := ENVS.get(name), ForeignVecEnvCfg)
}  # fmt: skip
CLOSE = 1.0
"""Of 255, on average over a picture: another driver's rounding. MuJoCo 3.3.7 draws the floor of
LIBERO-Object 36 to 40 darker, and robosuite's Door 17 to 39."""


def golden(name):
    with np.load(ROOT / "tests/golden/simulator_pictures.npz") as pictures:
        prefix = f"{name}/"
        return {
            key.removeprefix(prefix): pictures[key].astype(int)
            for key in pictures.files
            if key.startswith(prefix)
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    "cfg",
    [LiberoCfg(), RobosuiteCfg(), ManiskillCfg(), CalvinCfg(later_starts=0.0)],
    ids=lambda cfg: cfg.interpreter,
)
def test_foreign_simulators_draw_as_the_version_that_made_their_data(cfg):
    expected = golden(cfg.interpreter)
    tasks = dict.fromkeys(key.rpartition("/")[0] for key in expected)
    cameras = list(simulator_pictures.CAMERAS[cfg.interpreter])
    with real.workspace_of(cfg.interpreter):
        drawn = simulator_pictures.of_environment(
            cfg.replace(image_size=256, cameras=cameras), tasks
        )
    check(drawn, expected)


def check(drawn, expected):
    """Pictures by TASK/CAMERA are those that were drawn before."""
    assert drawn.keys() == expected.keys()
    off = {key: np.abs(drawn[key] - expected[key]).mean() for key in expected}
    assert {key: value for key, value in off.items() if value > CLOSE} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", simulator_pictures.PROTOCOLS)
def test_simulators_of_one_version_draw_as_before(name, monkeypatch):
    monkeypatch.setenv("RRF_HOME", os.environ.get("RRF_HOME", str(ROOT)))
    try:
        drawn = simulator_pictures.of_protocol(simulator_pictures.PROTOCOLS[name])
    except (NotSetUpError, ImportError) as error:
        pytest.skip(str(error))
    check(drawn, golden(name))


@pytest.mark.slow
def test_metaworld_is_drawn_as_by_the_mujoco_that_it_was_published_with(tmp_path):
    gl = {"MUJOCO_GL": "egl", "PYOPENGL_PLATFORM": "egl", "PYTHONPATH": ""}
    opens = "import mujoco; mujoco.GLContext(8, 8)"
    run = {"env": os.environ | gl, "capture_output": True, "text": True}
    if subprocess.run([sys.executable, "-c", opens], **run).returncode:
        pytest.skip("no OpenGL through EGL here")
    command = [sys.executable, simulator_pictures.__file__, "metaworld", tmp_path / "ours.npz"]
    done = subprocess.run(command, **run)
    assert not done.returncode, done.stderr
    expected = golden("metaworld")
    with np.load(tmp_path / "ours.npz") as drawn:
        check({key: drawn[key] for key in expected}, expected)
    assert len(expected) == 11


@pytest.mark.parametrize("name", FOREIGN)
def test_the_lock_pins_the_versions_that_protocols_are_for(name):
    lock = interpreters.read_lock(FOREIGN[name].interpreter)
    lines = [line for line in lock.path.read_text().splitlines() if not line.startswith("#")]
    pins = dict(line.split("==") for line in lines)
    clones = [*lock.checkouts.values(), *getattr(FOREIGN[name], "checkouts", ())]
    pins |= {checkout.name: checkout.commit for checkout in clones}
    assert FOREIGN[name].packages
    assert set(FOREIGN[name].packages) <= pins.keys()
    protocols = map(load_protocol, sorted((ROOT / "configs/protocols").glob("*.yaml")))
    for versions in [p.versions for p in protocols if getattr(p, "env", None) == name]:
        assert {package: pins[package] for package in versions} == versions


def test_protocols_of_libero_are_for_the_version_that_draws_as_its_data():
    for path in (ROOT / "configs/protocols").glob("libero-*.yaml"):
        assert load_protocol(path).versions == {"mujoco": "3.3.2", "robosuite": "1.4.0"}, path
