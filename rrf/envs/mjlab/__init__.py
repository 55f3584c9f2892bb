"""mjlab's tasks, on mjlab itself or on native MuJoCo (`native/`)."""
