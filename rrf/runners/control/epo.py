"""The on-policy loop of a population that evolves (arXiv:2503.19037)."""

from rrf.runners.control.sapg import SAPGOnPolicyRunner


class EPOOnPolicyRunner(SAPGOnPolicyRunner):
    """Trains with EPO. Iterations, blocks and metrics are the same as for SAPG."""
