"""The tables of docs/how-to/rlinf-configs.md, drawn from `rrf.presets.rlinf.keys`.

`python -m tests.presets.rlinf.keys_page` draws them again.
"""

from pathlib import Path

from rrf.presets.rlinf.keys import HARMLESS, MAPPED, NONE

PAGE = Path(__file__).parents[3] / "docs/how-to/rlinf-configs.md"
_TABLES = {
    "mapped": ("ours", "RLinf's", MAPPED, True),
    "harmless": ("why it changes nothing here", "RLinf's", HARMLESS, False),
    "none": ("why it has no counterpart", "RLinf's", NONE, False),
}


def drawn(text: str) -> str:
    """The page with its tables as the code has them."""
    for name, (first, second, table, is_code) in _TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        rows = [f"| {first} | {second} |", "|---|---|"]
        for counterpart, patterns in table.items():
            shown = f"`{counterpart}`" if is_code else counterpart
            rows.append(f"| {shown} | {', '.join(f'`{p}`' for p in patterns.split())} |")
        text = f"{before}{begin}\n\n" + "\n".join(rows) + f"\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
