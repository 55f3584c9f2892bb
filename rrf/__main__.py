"""`rrf`, also as `python -m rrf`, e.g. `torchrun --nproc_per_node=2 -m rrf train ...`."""

import sys

if sys.version_info < (3, 12):  # noqa: UP036 (a checkout runs with any; older ones cannot read rrf)
    version = ".".join(map(str, sys.version_info[:2]))
    sys.stderr.write(f"error: rrf needs Python 3.12 or newer, but {sys.executable} is {version}\n")
    raise SystemExit(2)

from rrf import ctrl_c


def main() -> None:
    """Answer Ctrl-C from here on, and run the command."""
    with ctrl_c.listening():
        from rrf import cli

        cli.main()


if __name__ == "__main__":
    main()
