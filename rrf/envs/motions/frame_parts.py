"""What can be seen of a frame of a motion; `rrf.envs.motions.rig.frames` defines each part."""

FRAME_PARTS = ("joint_pos", "joint_vel", "height", "lin_vel", "ang_vel", "gravity", "feet")
