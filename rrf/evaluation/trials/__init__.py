"""Trials on real robots: the plan, the blinded order, the record of what people saw, results."""
