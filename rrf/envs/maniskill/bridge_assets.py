"""Meshes and pictures of the tables of BridgeData V2: of two repositories, and what stands in.

Runs in the interpreter of the simulator. Nothing is downloaded. The repositories are clones that
`MANISKILL2_REAL2SIM_PATH` (SimplerEnv's table, objects and robot) and `RL4VLA_PATH` (25 objects, 17
plates, 21 pictures of tables, 21 textures) name. Stand-ins are shapes and pictures of ours of about
the same sizes; a table that stands in is a plane at the same height, which no image shows, because
the picture of a real table covers it.
"""

# pyright: reportMissingImports=false

import json
import math
import tempfile
from pathlib import Path

import cv2
import numpy as np
import trimesh

TABLE_TOP_M = 0.866532
_SIZE = (640, 480)
_REAL2SIM_FOLDERS = {
    "tasks/bridge_v2_real2sim_dataset/custom": "data/custom",
    "tasks/bridge_v2_real2sim_dataset/real_inpainting": "data/real_inpainting",
    "robots/widowx": "mani_skill2_real2sim/assets/descriptions/widowx_description",
}
_TABLE = "tasks/bridge_v2_real2sim_dataset/stages/bridge_table_1_v1.glb"
_SINK_TABLE = "tasks/bridge_v2_real2sim_dataset/stages/bridge_table_1_v2.glb"
_STAGES = "data/hab2_bench_assets/stages"
_RL4VLA_FOLDER = "ManiSkill/mani_skill/assets/carrot"
_UPRIGHT = {"7up can", "fast food cup", "plant", "nonstop can", "champagne glass", "BBQ sauce"}
_ROUND = {"golf ball", "onion", "pepper", "potato"}
_LONG = {"plastic bottle", "ketchup bottle", "pipe", "travel cup", "carrot", "zuchinni", "baguette"}
_SIZES_CM = (
    *((11, 3, 3), (5, 12, 2), (4, 4, 3), (3.5, 11, 3.5), (3.3, 6, 3.3), (10, 3, 2.5), (2, 8, 2)),
    *((10, 4, 4), (3.4, 7, 3.4), (4, 4, 5), (2.5, 2.5, 5), (4, 4, 7), (10, 3, 2), (5, 5, 4)),
    *((3, 3, 3), (5, 3, 7), (5, 8, 3.4), (4.4, 4.4, 4.4), (3.4, 3.4, 8), (4.5, 7, 4.5)),
    *((3.5, 13, 2.5), (2.8, 2.8, 8), (4, 11, 1.6), (5, 6, 5), (5, 4.4, 3.6)),
)


class Library:
    """Where meshes and pictures are. `folder` is what ManiSkill reads as MS_ASSET_DIR."""

    def __init__(self, assets, real2sim, rl4vla, commands):
        """
        Args:
            assets: genuine, mixed (what the clones lack is replaced) or stand_ins (of all).
            real2sim: Folder of the clone of ManiSkill2_real2sim, or None.
            rl4vla: Folder of the clone of RL4VLA, or None.
            commands: What to type for each of the two, if it is not there.
        """
        self._mixes, self._stands_in = assets == "mixed", assets == "stand_ins"
        self._real2sim, self._rl4vla, self._commands = real2sim, rl4vla, commands
        self._own = tempfile.TemporaryDirectory(prefix="rrf-bridge-")
        self.folder = Path(self._own.name)
        data = self.folder / "data"
        (data / _TABLE).parent.mkdir(parents=True)
        (data / "robots").mkdir()
        if self._stands_in:
            (data / "robots" / "widowx").mkdir()
            (data / "robots" / "widowx" / "wx250s.urdf").write_text(_urdf())
            _write_table(data / _TABLE)
            return
        root = self._clone("real2sim")
        for place, folder in _REAL2SIM_FOLDERS.items():
            (data / place).symlink_to(self._there(root / folder, "real2sim"))
        for place in (_TABLE, _SINK_TABLE):
            source = root / _STAGES / Path(place).name
            if source.exists():
                (data / place).symlink_to(source)
            elif self._mixes and place == _TABLE:
                _write_table(data / place)

    def close(self):
        """Remove what was written."""
        self._own.cleanup()

    def check_simpler(self, task):
        """Raises ValueError if a task of SimplerEnv lacks something."""
        if self._stands_in:
            raise ValueError(
                f"{task} is played with SimplerEnv's own objects only; set assets to genuine, or "
                "to mixed if the clone lacks large files"
            )
        needed = _TABLE
        if task == "PutEggplantInBasketScene-v1":
            needed, eggplant = _SINK_TABLE, "data/custom/models/eggplant/textured.dae"
            self._there(self._clone("real2sim") / eggplant, "real2sim")
        self.check_stage(needed)

    def check_stage(self, place=_TABLE):
        """Raises ValueError if there is no mesh of a table."""
        if not (self.folder / "data" / place).exists():
            self._there(self._clone("real2sim") / _STAGES / Path(place).name, "real2sim")

    def model(self, kind, names, number):
        """An object or plate of PutOnPlateInScene25.

        Args:
            kind: carrot or plate.
            names: Of all of its kind.
            number: Which.

        Returns:
            collision and visual (files, or None for a shape that stands in), corners [2, 3] in
            metres, density in kg/m³, shape and colour of what stands in.
        """
        name = names[number]
        if self._stands_in:
            size, shape = _stand_in(kind, name, number)
            corners = np.stack([-size / 2, size / 2])
            model = {"collision": None, "visual": None, "corners": corners, "density": 700.0}
            return dict(model, shape=shape, colour=_colour(number, len(names)))
        folder = self._pictures_of(f"more_{kind}")
        known = json.loads(self._there(folder / "model_db.json", "rl4vla").read_text())
        label = list(known)[number]
        assert known[label]["name"] == name, (known[label]["name"], name)
        collision = self._there(folder / label / "collision.obj", "rl4vla")
        files = [folder / label / f"textured.{ending}" for ending in ("obj", "dae", "glb")]
        visual = next((file for file in files if file.exists()), None)
        if visual is None and not self._mixes:
            self._there(files[-1], "rl4vla")
        box = known[label]["bbox"]
        corners = np.array([box["min"], box["max"]])
        model = {"collision": collision, "visual": visual, "corners": corners}
        density = float(known[label].get("density", 1000))
        return dict(model, density=density, shape="mesh", colour=_colour(number, len(names)))

    def table(self, number):
        """uint8 [480, 640, 3]: a picture of a table."""
        if self._stands_in:
            return _table_picture(number)
        label = list(self._tables())[number]
        return _read(self._there(self._pictures_of("more_table") / "imgs" / label, "rl4vla"))

    def texture(self, number, size=_SIZE):
        """A picture that is laid over images, uint8 [H, W, 3], and how strongly, 0 to 1."""
        if self._stands_in:
            return cv2.resize(_texture_picture(number), size), float(number > 0)
        known = list(self._tables().values())[number]
        folder = self._pictures_of("more_table") / "textures"
        return _read(self._there(folder / known["texture"], "rl4vla"), size), float(known["mix"])

    def _tables(self):
        file = self._pictures_of("more_table") / "model_db.json"
        return json.loads(self._there(file, "rl4vla").read_text())

    def _pictures_of(self, folder):
        return self._clone("rl4vla") / _RL4VLA_FOLDER / folder

    def _clone(self, which):
        root = self._real2sim if which == "real2sim" else self._rl4vla
        if root is None:
            raise ValueError(f"the assets of {which} are not here; {self._commands[which]}")
        return Path(root)

    def _there(self, path, which):
        if not path.exists():
            raise ValueError(f"{path} is missing. {self._commands[which]}")
        return path


def picture(path):
    """uint8 [480, 640, 3] of a file."""
    return _read(path)


def _read(path, size=_SIZE):
    read = cv2.imread(str(path))
    if read is None:
        raise ValueError(f"{path} is no picture")
    return cv2.resize(cv2.cvtColor(read, cv2.COLOR_BGR2RGB), size)


def _write_table(path):
    """A slab whose top is where the table's is, in the frame that ManiSkill turns and moves."""
    slab = trimesh.creation.box(extents=[2.0, 2.0, 0.1])
    slab.apply_translation([-0.2 - 2.0634, -2.8313, TABLE_TOP_M - 0.05])
    slab.apply_transform(np.array([[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1.0]]))
    slab.export(path)


def _stand_in(kind, name, number):
    if kind == "plate":
        is_square = name in ("newspaper", "sheet metal", "notepad", "chess board", "envelope")
        return np.array([0.11, 0.09 if is_square else 0.11, 0.006]), "box" if is_square else "disc"
    size = np.array(_SIZES_CM[number]) / 100
    if name in _ROUND:
        return size, "ball"
    return size, "upright" if name in _UPRIGHT else "lying" if name in _LONG else "box"


def _colour(number, count):
    hue = (number * 7 % count) / count
    hsv = np.array([[[hue * 179, 200, 220]]], np.uint8)
    return [*(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)[0, 0] / 255.0), 1.0]


def _table_picture(number):
    """A table top before a wall; training pictures have warm tones."""
    random = np.random.default_rng([25, number])
    hue = 8 + number if number < 16 else 60 + 20 * (number - 16)
    rows, columns = np.mgrid[0:480, 0:640]
    grain = np.sin(columns / 40 + 6 * np.sin(rows / 90 + number))
    grain += random.normal(0, 0.2, grain.shape)
    hsv = np.zeros((480, 640, 3), np.uint8)
    hsv[..., 0], hsv[..., 1] = hue, 150 if number < 16 else 90
    hsv[..., 2] = np.clip(150 + 12 * grain, 0, 255)
    drawn = cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB)
    wall = np.array([[0, 0], [640, 0], [640, 210], [165, 75], [0, 190]], np.int32)
    cv2.fillPoly(drawn, [wall], [int(tone) for tone in random.integers(110, 180, 3)])
    return drawn


def _texture_picture(number):
    random = np.random.default_rng([26, number])
    coarse = random.integers(0, 255, (6 + number % 5, 8 + number % 7, 3)).astype(np.uint8)
    how = cv2.INTER_NEAREST if number % 2 else cv2.INTER_CUBIC
    return cv2.resize(coarse, _SIZE, interpolation=how)


def _urdf():
    """A WidowX 250 S of boxes: the axes, lengths and limits are those of its maker."""
    pi = math.pi
    arm, forearm = ("upper_arm_link", "upper_forearm_link"), "lower_forearm_link"
    joints = [  # name, parent, child, place, axis, lower, upper
        ("waist", "base_link", "shoulder_link", (0, 0, 0.072), (0, 0, 1), -pi, pi),
        ("shoulder", "shoulder_link", arm[0], (0, 0, 0.03865), (0, 1, 0), -1.88, 1.99),
        ("elbow", *arm, (0.04975, 0, 0.25), (0, 1, 0), -2.14, 1.6),
        ("forearm_roll", arm[1], forearm, (0.175, 0, 0), (1, 0, 0), -pi, pi),
        ("wrist_angle", forearm, "wrist_link", (0.075, 0, 0), (0, 1, 0), -1.74, 2.14),
        ("wrist_rotate", "wrist_link", "gripper_link", (0.065, 0, 0), (1, 0, 0), -pi, pi),
        ("fingers", "gripper_link", "fingers_link", (0.066, 0, 0), None, 0, 0),
        ("ee_gripper", "fingers_link", "ee_gripper_link", (0.027575, 0, 0), None, 0, 0),
        ("left_finger", "fingers_link", "left_finger_link", (0, 0, 0), (0, 1, 0), 0.015, 0.037),
        ("right_finger", "fingers_link", "right_finger_link", (0, 0, 0), (0, -1, 0), 0.015, 0.037),
    ]
    boxes = {  # link: mass in kg, size and middle in metres
        "base_link": (0.54, (0.15, 0.12, 0.07), (-0.03, 0, 0.035)),
        "shoulder_link": (0.48, (0.07, 0.07, 0.06), (0, 0, 0.005)),
        "upper_arm_link": (0.43, (0.05, 0.05, 0.25), (0.01, 0, 0.13)),
        "upper_forearm_link": (0.23, (0.16, 0.05, 0.05), (0.09, 0, 0)),
        "lower_forearm_link": (0.22, (0.07, 0.06, 0.05), (0.03, 0, 0)),
        "wrist_link": (0.085, (0.06, 0.04, 0.045), (0.035, 0, 0.01)),
        "gripper_link": (0.11, (0.05, 0.14, 0.04), (0.03, 0, 0)),
        "left_finger_link": (0.02, (0.038, 0.008, 0.02), (0.018, -0.0115, 0)),
        "right_finger_link": (0.02, (0.038, 0.008, 0.02), (0.018, 0.0115, 0)),
    }
    dark = '<material name="dark"><color rgba="0.12 0.12 0.12 1"/></material>'
    lines = ['<robot name="wx250s">', dark]
    for link in ["base_link", *(child for _, _, child, *_ in joints)]:
        mass, size, middle = boxes.get(link, (0.001, None, (0, 0, 0)))
        origin = f'<origin xyz="{_numbers(middle)}"/>'
        inertia = mass * 0.0006
        lines.append(
            f'<link name="{link}"><inertial>{origin}<mass value="{mass}"/><inertia ixx="{inertia}" '
            f'ixy="0" ixz="0" iyy="{inertia}" iyz="0" izz="{inertia}"/></inertial>'
        )
        if size is not None:
            shape = f'{origin}<geometry><box size="{_numbers(size)}"/></geometry>'
            lines.append(f'<visual>{shape}<material name="dark"/></visual>')
            lines.append(f"<collision>{shape}</collision>")
        lines.append("</link>")
    for name, parent, child, place, axis, lower, upper in joints:
        kind = "fixed" if axis is None else "prismatic" if "finger" in name else "revolute"
        limit = f'<limit lower="{lower}" upper="{upper}" effort="20" velocity="3.14"/>'
        moves = f'<axis xyz="{_numbers(axis)}"/>{limit}' if axis is not None else ""
        lines.append(
            f'<joint name="{name}" type="{kind}"><origin xyz="{_numbers(place)}"/><parent '
            f'link="{parent}"/><child link="{child}"/>{moves}</joint>'
        )
    return "\n".join([*lines, "</robot>"])


def _numbers(values):
    return " ".join(str(value) for value in values)
