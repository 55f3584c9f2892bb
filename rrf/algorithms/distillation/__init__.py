"""Students that learn from a teacher, which may see more: distillation and DAgger."""
