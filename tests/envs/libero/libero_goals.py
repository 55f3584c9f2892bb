"""Runs in LIBERO's interpreter, for `test_libero.py`: prints as JSON what the simulator's file does
with states that are set by hand, and with LIBERO's own evaluation loop beside it.
"""

import json
import sys

import numpy as np

sys.path[:0] = sys.argv[1:3]

import simulator  # noqa: E402 (found through the arguments)

SUITES = {"libero-goal": ["open_the_middle_drawer_of_the_cabinet", "put_the_bowl_on_the_plate"]}
DRAWER, BOWL = SUITES["libero-goal"]
STILL = np.array([0, 0, 0, 0, 0, 0, -1], np.float32)


def successes():
    """Success of standing still before and after the goal is brought about, per task."""
    made.begin(0, DRAWER, 1, 0)
    found = {DRAWER: [made.act(0, STILL)]}
    data = made._scenes[0].sim.data
    data.set_joint_qpos("wooden_cabinet_1_middle_level", -0.15)
    found[DRAWER].append(made.act(0, STILL))
    made.begin(0, BOWL, 1, 0)
    found[BOWL] = [made.act(0, STILL)]
    sim = made._scenes[0].sim
    place = np.add(sim.data.get_body_xpos("plate_1_main"), (0, 0, 0.03))
    sim.data.set_joint_qpos("akita_black_bowl_1_joint0", [*place, 1, 0, 0, 0])
    found[BOWL].append([made.act(0, STILL) for _ in range(10)][-1])
    return found


def difference_to_own_loop():
    """Largest difference of a joint to what LIBERO's own classes do, which make the scene anew."""
    from libero.libero.envs import OffScreenRenderEnv

    actions = np.random.default_rng(0).uniform(-1, 1, (20, 7)).astype(np.float32)
    made.begin(0, BOWL, 3, 7)
    start = made._scenes[0].sim.get_state().flatten()
    for action in actions:
        made.act(0, action)
    ours = made._scenes[0].sim.get_state().flatten()
    file = str(made._file("bddl_files", BOWL, ".bddl"))
    own = OffScreenRenderEnv(bddl_file_name=file, camera_heights=32, camera_widths=32)
    seed = np.random.SeedSequence([3, 7, simulator.zlib.crc32(BOWL.encode())]).generate_state(4)
    np.random.seed(seed)
    own.reset()
    own.set_init_state(made._recorded(BOWL)[7])
    for _ in range(10):
        own.step([0, 0, 0, 0, 0, 0, -1])
    begun = own.sim.get_state().flatten()
    for action in actions:
        own.step(action.astype(float))
    theirs = own.sim.get_state().flatten()
    return [float(np.abs(a - b).max()) for a, b in ((start, begun), (ours, theirs))]


made = simulator.Libero(
    suites=SUITES, is_recorded=True, settle_steps=10, image_flip="both", gripper="minus_opens",
    control_hz=20, image_size=32, effects=False, has_images=False, max_loaded=2,
)  # fmt: skip
found = {"successes": successes(), "differences": difference_to_own_loop()}
sys.stdout.write(json.dumps(found) + "\n")
