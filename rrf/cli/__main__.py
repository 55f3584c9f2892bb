"""`python -m rrf.cli` runs the `rrf` command if the script is not on the PATH."""

from rrf.cli import main

if __name__ == "__main__":
    main()
