"""Makes what Isaac Lab needs besides its packages, in the folder of its interpreter:

    assets/     what `ISAACSIM_ASSET_ROOT` points to, unless the user has one
    tasks.json  its tasks, with the settings that rsl_rl trains them with

`rrf envs setup isaaclab` runs it there. Isaac Lab's own assets are on a server of NVIDIA. Genuine
here is the cart-pole, which Isaac Lab's package has in a stage that its tests compare. The others
stand in: Newton's ant; the robots of `example-robot-data`, the makers' URDFs with their collision
shapes only; a ground plane.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false
# pyright: reportArgumentType=false, reportPossiblyUnboundVariable=false

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path

_CART_POLE = (
    "source/isaaclab_tasks/test/golden_stages/cartpole/physx-newton_renderer-rgb.usda",
    "/World/envs/env_0/Robot",
)
_LAB = "Isaac/IsaacLab/Robots"
_ROBOTS = (  # file of example-robot-data, place, first link, links that stay bodies, is it fixed
    ("go2_description/urdf/go2.urdf", "Unitree/Go2/go2.usd", "base", ".*_foot", False),
    ("a1_description/urdf/a1.urdf", "Unitree/A1/a1.usd", "trunk", ".*_foot", False),
    ("go1_description/urdf/go1.urdf", "Unitree/Go1/go1.usd", "trunk", ".*_foot", False),
    (
        "anymal_b_simple_description/robots/anymal.urdf",
        *("ANYbotics/ANYmal-B/anymal_b.usd", "base", ".*_FOOT", False),
    ),
    (
        "anymal_c_simple_description/urdf/anymal.urdf",
        *("ANYbotics/ANYmal-C/anymal_c.usd", "base", ".*_FOOT", False),
    ),
    (
        "panda_description/urdf/panda.urdf",
        *("FrankaEmika/Legacy/panda_instanceable.usd", "panda_link0", "panda_hand", True),
    ),
    (
        "panda_description/urdf/panda.urdf",
        *("FrankaEmika/franka_panda.usda", "panda_link0", "panda_hand", True),
    ),
)
# NVIDIA's file of a robot has the stiffness and damping of its drives, and Isaac Lab's config takes
# them from there. These are those of its config FRANKA_PANDA_HIGH_PD_CFG and of the legacy hand.
_DRIVES = {"FrankaEmika/franka_panda.usda": {"angular": (400.0, 80.0), "linear": (2000.0, 100.0)}}
_GROUND = """#usda 1.0
(
    defaultPrim = "World"
    metersPerUnit = 1
    upAxis = "Z"
)

def Xform "World"
{
    def Xform "Environment"
    {
        double3 xformOp:scale = (1, 1, 1)
        uniform token[] xformOpOrder = ["xformOp:scale"]

        def Mesh "Geometry"
        {
            int[] faceVertexCounts = [4]
            int[] faceVertexIndices = [0, 1, 2, 3]
            point3f[] points = [(-50, -50, 0), (50, -50, 0), (50, 50, 0), (-50, 50, 0)]
            color3f[] primvars:displayColor = [(0.35, 0.37, 0.4)]
            texCoord2f[] primvars:st = [(0, 0), (1, 0), (1, 1), (0, 1)] (
                interpolation = "vertex"
            )
            uniform token subdivisionScheme = "none"
        }
    }

    def Plane "CollisionPlane" (
        prepend apiSchemas = ["PhysicsCollisionAPI"]
    )
    {
        uniform token axis = "Z"
        uniform token purpose = "guide"
    }
}
"""


def assets(root):
    """Write the assets below `root`."""
    os.environ["ISAACSIM_ASSET_ROOT"] = str(root)  # before Isaac Lab is imported
    import isaaclab
    import newton
    import robots
    from isaaclab.sim.spawners.from_files.from_files_cfg import GroundPlaneCfg

    _write_text(Path(GroundPlaneCfg().usd_path), _GROUND)
    stage, place = _CART_POLE
    cart_pole = root / _LAB / "Classic/Cartpole/cartpole.usd"
    _cut_out(Path(isaaclab.__file__).parent / stage, place, cart_pole)
    ant = root / "Isaac/Robots/IsaacSim/Ant/ant_instanceable.usd"
    ant.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(newton.__file__).parent / "examples/assets/ant.usda", ant)
    share = next(Path(sys.prefix, "lib").glob("python*/site-packages/cmeel.prefix/share"))
    for urdf, target, first, kept, is_fixed in _ROBOTS:
        file = share / "example-robot-data/robots" / urdf
        feet = None if is_fixed else kept
        drives = _DRIVES.get(target)
        robots.write(file, root / _LAB / target, share, first, kept, is_fixed, feet, drives)


def _write_text(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _cut_out(stage_file, place, target):
    """Write a prim of a stage, with the prototypes that its instances refer to, as an asset."""
    from pxr import Sdf

    source, asset = Sdf.Layer.FindOrOpen(str(stage_file)), Sdf.Layer.CreateAnonymous(".usda")
    name = "Robot"
    for prim in source.rootPrims:
        if prim.name.startswith("Flattened_Prototype"):
            Sdf.CopySpec(source, prim.path, asset, prim.path)
    Sdf.CopySpec(source, place, asset, f"/{name}")
    asset.defaultPrim = name
    for key in ("metersPerUnit", "kilogramsPerUnit", "upAxis"):
        asset.pseudoRoot.SetInfo(key, source.pseudoRoot.GetInfo(key))
    target.parent.mkdir(parents=True, exist_ok=True)
    asset.Export(str(target))


def tasks():
    """Task -> its settings, as JSON data."""
    import gymnasium
    import isaaclab_tasks  # noqa: F401 (registers the tasks)
    from isaaclab_tasks.utils.parse_cfg import load_cfg_from_registry

    found = {}
    for name in sorted(gymnasium.registry):
        if not name.startswith(("Isaac-", "IsaacContrib-")):
            continue
        settings = None
        if "rsl_rl_cfg_entry_point" in gymnasium.registry[name].kwargs:
            try:
                settings = load_cfg_from_registry(name, "rsl_rl_cfg_entry_point").to_dict()
            except (ImportError, TypeError, ValueError) as error:  # of a task that needs more
                sys.stderr.write(f"{name}: no settings ({error})\n")
        found[name] = {"rsl_rl": _plain(settings)}
    return found


def _plain(value):
    """The part of a value that JSON can hold; functions and classes by their names."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__name__", type(value).__name__)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with contextlib.redirect_stdout(io.StringIO()):
        assets((folder / "assets").absolute())
        listed = tasks()
    (folder / "tasks.json").write_text(json.dumps(listed, indent=1))
    sys.stdout.write(
        f"{len(listed)} tasks. In assets/ the cart-pole is Isaac Lab's own; the ground, the ant "
        "and the robots stand in. Set ISAACSIM_ASSET_ROOT to use Isaac Sim's\n"
    )


if __name__ == "__main__":
    main()
