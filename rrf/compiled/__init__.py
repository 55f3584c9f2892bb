"""C code of this project, compiled on the machine that runs it, and who may use it (`accelerate`).

Everything here is optional: without a C compiler the same numbers, but for rounding, come from
torch's operators.
"""
