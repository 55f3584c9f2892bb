"""The table of lerobot's policies in docs/models.md, drawn from `rrf.policies.vla.lerobot.kinds`.

What it claims of a kind is what tests/runners/supervised/test_lerobot_zoo.py and the tests beside
this file do with each. `python -m tests.policies.vla.lerobot.lerobot_table` writes it anew.
"""

import re
import sys
from pathlib import Path

from rrf.policies.vla.lerobot.kinds import KINDS, REFUSED

PAGE = Path(__file__).parents[4] / "docs/models.md"
_STEPS = ("trained", "evaluated", "gated", "served", "imported", "exported")
_BEGIN, _END = (
    "<!-- zoo: drawn by tests/policies/vla/lerobot/lerobot_table.py -->\n",
    "<!-- /zoo -->",
)


def table() -> str:
    """The lines between the marks."""
    head = ("kind", "policy", "reads the instruction", *_STEPS, "local directories it needs")
    rows = [head, ("---",) * len(head)]
    for name, kind in KINDS.items():
        needs = ", ".join(f"`{option}`" for option in kind.directories)
        reads = "yes" if kind.reads_instruction else "no"
        rows.append((f"`{name}`", kind.what, reads, *("yes",) * len(_STEPS), needs))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines += ["", "Refused, each with this reason:", ""]
    lines += [f"- `{name}`: {reason}" for name, reason in REFUSED.items()]
    return "\n".join(line.replace("|  |", "| |") for line in lines) + "\n"


def written() -> str:
    """What stands between the marks on the page."""
    return _parts()[1]


def _parts() -> tuple[str, str, str]:
    found = re.fullmatch(
        rf"(.*{re.escape(_BEGIN)})(.*)({re.escape(_END)}.*)", PAGE.read_text(), re.DOTALL
    )
    assert found, f"{PAGE} has no {_BEGIN.strip()} ... {_END}"
    return found[1], found[2], found[3]


if __name__ == "__main__":
    before, _, after = _parts()
    PAGE.write_text(before + table() + after)
    sys.stdout.write(f"wrote {PAGE}\n")
