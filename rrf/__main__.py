"""`python -m rrf`: the same command, e.g. for `torchrun --nproc_per_node=2 -m rrf train ...`."""

from rrf.cli import main

if __name__ == "__main__":
    main()
