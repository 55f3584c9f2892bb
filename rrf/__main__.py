"""`python -m rrf` runs the `rrf` command, e.g. `torchrun --nproc_per_node=2 -m rrf train ...`."""

from rrf.cli import main

if __name__ == "__main__":
    main()
