"""Pictures: the ray tracer, OpenGL, cameras, videos, a viewer."""

VISIBLE_GROUPS = (0, 1, 2)
"""MuJoCo's default: geoms and sites of groups 3 to 5 are hidden."""
