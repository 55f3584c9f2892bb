"""The frame of the evaluation report: one HTML file that contains its style and loads nothing."""

from collections.abc import Iterable, Mapping
from html import escape

_STYLE = """
:root{--ink:#111827;--soft:#6b7280;--line:#e5e7eb;--pass:#15803d;--hold:#b45309;--fail:#b91c1c}
*{box-sizing:border-box}
body{margin:0;background:#f3f4f6;color:var(--ink);font:15px/1.5 system-ui,Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}
header{display:flex;justify-content:space-between;align-items:flex-start;gap:16px}
header{margin-bottom:18px}
h1{font-size:24px;margin:0}
h2{font-size:17px;margin:0 0 14px}
.soft{color:var(--soft)}
.mono{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px;word-break:break-all}
section{background:#fff;border:1px solid var(--line);border-radius:12px}
section{padding:20px 22px;margin-bottom:16px}
.headline{display:flex;gap:34px;align-items:center;flex-wrap:wrap}
.headline>div:nth-child(2){flex:1 1 360px}
.big{font-size:62px;font-weight:700;line-height:1;color:#0f766e;letter-spacing:-.02em}
.facts{display:flex;gap:28px;flex-wrap:wrap;margin-top:16px}
.facts{padding-top:14px;border-top:1px solid var(--line)}
.facts b{display:block;font-size:18px}
.pass{--tone:var(--pass)}
.hold{--tone:var(--hold)}
.fail{--tone:var(--fail)}
.badge{padding:5px 14px;border-radius:99px;color:#fff;font-weight:600;white-space:nowrap}
.badge{background:var(--tone,#6b7280)}
.reasons{list-style:none;margin:0;padding:0}
.reasons li{padding:8px 0 8px 62px;position:relative;border-top:1px solid var(--line)}
.reasons li:first-child{border:0}
.reasons li span{position:absolute;left:0;top:8px;color:var(--tone);font-weight:700}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:7px 10px 7px 0;border-top:1px solid var(--line)}
th,td{vertical-align:top}
th{font-weight:600;color:var(--soft);border-top:0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.key{width:210px;color:var(--soft)}
tr.total td{font-weight:700}
svg{width:100%;height:auto;display:block;font-family:system-ui,Roboto,sans-serif}
.worse{border-left:4px solid var(--tone);padding-left:12px;margin:16px 0 0}
.worse b{color:var(--tone)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(380px,1fr));gap:18px}
.videos{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));gap:14px}
figure{margin:0;border:1px solid var(--line);border-radius:10px;overflow:hidden}
figure{border-top:4px solid var(--tone)}
figure video,figure img{width:100%;display:block;background:#111}
figcaption{padding:8px 10px;font-size:13px}
figcaption b{color:var(--tone)}
pre{white-space:pre-wrap;margin:10px 0 0}
summary{cursor:pointer;color:var(--soft)}
footer{color:var(--soft);font-size:13px}
"""


def page(title: str, header: str, sections: Iterable[str], footer: str) -> str:
    """The whole HTML document."""
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><header>{header}</header>\n{chr(10).join(sections)}\n"
        f"<footer>{footer}</footer></main></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A card with a heading."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def badge(gate: str, outcome: str) -> str:
    """The outcome of a gate as a coloured label."""
    return f'<span class="badge {escape(outcome)}">gate {escape(gate)}: {escape(outcome)}</span>'


def link(title: str, address: str) -> str:
    """A link to a web page or a file; any other address becomes plain text."""
    if not address.startswith(("http://", "https://", "file://")):
        return f"{escape(title)}: {escape(address)}"
    return f'<a href="{escape(address)}">{escape(title)}</a>'


def key_table(rows: Mapping[str, object]) -> str:
    """Names and values, one row each."""
    cells = "".join(
        f'<tr><td class="key">{escape(key)}</td><td class="mono">{escape(str(value))}</td></tr>'
        for key, value in rows.items()
    )
    return f"<table>{cells}</table>"


def table(head: list[str], rows: list[list[str]], total: list[str] | None = None) -> str:
    """A table with text in the first column and numbers in the other columns."""
    lines = [_row("th", head, "")] + [_row("td", row, "") for row in rows]
    if total is not None:
        lines.append(_row("td", total, ' class="total"'))
    return f"<table>{''.join(lines)}</table>"


def _row(tag: str, cells: list[str], attributes: str) -> str:
    first, *numbers = cells
    inner = f"<{tag}>{escape(first)}</{tag}>"
    inner += "".join(f'<{tag} class="n">{escape(cell)}</{tag}>' for cell in numbers)
    return f"<tr{attributes}>{inner}</tr>"
