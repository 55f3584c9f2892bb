"""Pictures: the ray tracer, OpenGL, cameras, videos, a viewer."""
