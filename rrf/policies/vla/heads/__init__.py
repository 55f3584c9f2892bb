"""Action heads that read more of a backbone than one vector, one family per file."""
