"""mjlab's tasks on a CPU: mjlab's own terms and managers over MuJoCo's C library.

Everything here imports mjlab at its top; `rrf.envs.mjlab.env` loads it when a native environment
is built, after it has checked that mjlab is installed.
"""
