"""Configs of RLinf, and of Isaac Lab's extension of it, as training files of ours."""
