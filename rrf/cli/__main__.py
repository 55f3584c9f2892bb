"""`python -m rrf.cli`: the same command where the script is not on the path."""

from rrf.cli import main

if __name__ == "__main__":
    main()
