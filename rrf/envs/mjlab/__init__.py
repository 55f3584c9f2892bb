"""mjlab's tasks, run by mjlab itself or by native MuJoCo (`native/`)."""
