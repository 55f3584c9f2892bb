"""`make bench-tables`: the measured numbers as markdown tables.

They go to `docs/benchmarks/README.md` and, between marks such as `<!-- benchmarks -->` and
`<!-- /benchmarks -->`, to the README, so that no number is typed by hand.
"""

import json
import re

from benchmarks import headline_page, rl_algorithms
from benchmarks.record import RESULTS, ROOT
from rrf import atomic


def table(numbers: list[dict]) -> str:
    """One markdown table, a row per number."""
    lines = [
        "| what | value | peer | ratio | measured by | commit, date |",
        "|---|---|---|---|---|---|",
    ]
    for row in numbers:
        peer = f"{row['peer']}: {row['peer_value']:g}" if row["peer_value"] is not None else ""
        ratio = f"{row['ratio']:g}×" if row["ratio"] is not None else ""
        value = f"{row['value']:g} {row['unit']}"
        lines.append(
            f"| `{row['id']}` | {value} | {peer} | {ratio} | `{row['command']}` "
            f"| {row['commit']}, {row['date']} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Rewrite the tables from the JSON files."""
    sections, numbers = [], []
    for path in sorted(RESULTS.glob("*.json")):
        rows = json.loads(path.read_text())
        numbers += rows
        machines = ", ".join(sorted({row["machine"] for row in rows}))
        sections.append(f"## {path.stem}\n\nMachine: {machines}.\n\n{table(rows)}")
    sections.append(f"## Learning curves of state-based control\n\n{_curves()}")
    sections.append(f"## Reinforcement learning by task\n\n{headline_page.details()}")
    atomic.write_text(RESULTS / "README.md", "# Measured numbers\n\n" + "\n".join(sections))
    headline_page.draw()
    readme = ROOT / "README.md"
    algorithms = [row for row in numbers if row["id"].startswith("algorithm_")]
    others = [row for row in numbers if row not in algorithms]
    text = _put(readme.read_text(), "benchmarks", table(others))
    text = _put(text, "algorithms", rl_algorithms.overview(algorithms))
    atomic.write_text(readme, _put(text, "headline", headline_page.overview()))


def _curves() -> str:
    """The pictures of `benchmarks.rl_curves`, and what was measured for each."""
    found = sorted((RESULTS / "curves").glob("*.svg"))
    return "".join(f"![{path.stem}](curves/{path.name})\n\n" for path in found)


def _put(text: str, mark: str, content: str) -> str:
    """`text` with `content` between the marks of this name."""
    between = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    return between.sub(lambda found: found[1] + content + found[2], text)


if __name__ == "__main__":
    main()
