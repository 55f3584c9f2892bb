"""mjlab's tasks on a CPU: mjlab's own terms and managers on MuJoCo's C library.

Every module here imports mjlab at its top. `rrf.envs.mjlab.env` loads these modules when a native
environment is built, after it has checked that mjlab is installed.
"""
