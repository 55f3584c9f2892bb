"""The registry of models: register, judge, promote, roll back, fetch. Every change of a champion is
in the ledger.

Begin with `rrf.registry.promotion`. Nothing here imports torch.
"""
