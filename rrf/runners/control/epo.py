"""The on-policy loop of a population that evolves (arXiv:2503.19037)."""

from rrf.runners.control.sapg import SAPGOnPolicyRunner


class EPOOnPolicyRunner(SAPGOnPolicyRunner):
    """Trains with EPO; iterations, blocks and what is told are those of SAPG."""
