"""Simulators in interpreters of their own: other Pythons with other packages, which need not have
`rrf`.
"""
