"""What runs in a foreign interpreter: Python 3.8 or newer, its standard library and its NumPy.

Nothing here imports `rrf`. The parent imports `wire` too.
"""
