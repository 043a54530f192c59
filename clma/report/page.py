"""A page of sections with tables, as Markdown and as one HTML file that needs nothing else.

Examples
--------
>>> table = Table(("method", "F1"), ((Mark("clma"), Mark("0.91", best=True)),))
>>> print(to_markdown("Two methods", [Section("Result", tables=(table,))]))
# Two methods
<BLANKLINE>
## Result
<BLANKLINE>
| method | F1 |
| :-- | --: |
| clma | **0.91** |
<BLANKLINE>
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Mark", "Picture", "Section", "Table", "to_html", "to_markdown"]


@dataclass(frozen=True, slots=True)
class Mark:
    """The text of a cell.

    Parameters
    ----------
    text : str
    best : bool
        Of its column.
    sign : int
        1 where the difference that it shows is for us beyond doubt, -1 where it is against us.
    """

    text: str
    best: bool = False
    sign: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first column is text, the others are numbers.

    Parameters
    ----------
    header : tuple of str
    rows : tuple of tuple of Mark
    caption : str
    ours : str
        First cell of the row to be seen first.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[Mark, ...], ...]
    caption: str = ""
    ours: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG and what it shows."""

    png: bytes
    text: str


@dataclass(frozen=True, slots=True)
class Section:
    """A heading, paragraphs, code, tables, and pictures, which Markdown leaves out."""

    title: str
    text: tuple[str, ...] = ()
    code: str = ""
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Return a page as Markdown."""
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.title}")
        parts += section.text
        if section.code:
            parts.append(f"```sh\n{section.code}\n```")
        for table in section.tables:
            parts += [table.caption] if table.caption else []
            parts.append(_markdown_table(table))
    return "\n\n".join(parts) + "\n"


def to_html(title: str, sections: Sequence[Section]) -> str:
    """Return a page as HTML; style and pictures are in it, nothing is loaded from elsewhere."""
    links = " ".join(
        f'<a href="#s{number}">{html.escape(section.title)}</a>'
        for number, section in enumerate(sections)
    )
    body = "\n".join(_html_section(number, section) for number, section in enumerate(sections))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n<nav>{links}</nav>\n{body}\n</body>\n</html>\n"
    )


def _markdown_table(table: Table) -> str:
    align = [":--", *["--:"] * (len(table.header) - 1)]
    rows = [table.header, align, *([_markdown_cell(c) for c in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _markdown_cell(mark: Mark) -> str:
    text = mark.text.replace("|", "\\|")
    return f"**{text}**" if mark.best or mark.sign else text


def _html_section(number: int, section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    parts += [f"<p>{html.escape(text)}</p>" for text in section.text]
    if section.code:
        parts.append(f"<pre>{html.escape(section.code)}</pre>")
    if section.tables:
        tables = "\n".join(_html_table(table) for table in section.tables)
        parts.append(f'<div class="tables">{tables}</div>')
    if section.pictures:
        pictures = "".join(_html_picture(picture) for picture in section.pictures)
        parts.append(f'<div class="pictures">{pictures}</div>')
    return f'<section id="s{number}">\n' + "\n".join(parts) + "\n</section>"


def _html_table(table: Table) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.header)
    rows = "\n".join(_html_row(row, is_ours=row[0].text == table.ours) for row in table.rows)
    caption = f"<caption>{html.escape(table.caption)}</caption>" if table.caption else ""
    return (
        f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _html_row(row: Sequence[Mark], *, is_ours: bool) -> str:
    kind = ' class="ours"' if is_ours else ""
    return f"<tr{kind}>{''.join(map(_html_cell, row))}</tr>"


def _html_cell(mark: Mark) -> str:
    kind = {1: "for", -1: "against"}.get(mark.sign, "best" if mark.best else "")
    text = html.escape(mark.text)
    mean, plus_minus, sd = text.partition(" ± ")
    shown = f"{mean}<small>{plus_minus}{sd}</small>" if plus_minus else text
    return f'<td class="{kind}">{shown}</td>' if kind else f"<td>{shown}</td>"


def _html_picture(picture: Picture) -> str:
    data = base64.b64encode(picture.png).decode()
    text = html.escape(picture.text, quote=True)
    return f'<img alt="{text}" src="data:image/png;base64,{data}">'


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff; margin: 2rem auto;
  max-width: 1440px; padding: 0 1.5rem; }
h1 { font-size: 1.7rem; margin: 0 0 .6rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid #d5dbe3;
  padding-bottom: .3rem; }
p { max-width: 52rem; margin: .5rem 0; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
nav a, nav a:visited { color: #0b5cad; text-decoration: none; }
pre { background: #f3f5f8; padding: .7rem .9rem; border-radius: 4px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.tables { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0 1.4rem; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { padding: .28rem .6rem; text-align: right; }
th { border-bottom: 2px solid #8a97a8; font-weight: 600; vertical-align: bottom;
  white-space: normal; }
td { border-bottom: 1px solid #e6eaef; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
tr.ours td, tr.ours td:first-child { background: #eef6fc; }
td small { color: #64707f; font-size: .82em; }
td.best { font-weight: 700; }
td.for { color: #00694d; font-weight: 700; }
td.against { color: #a83c00; font-weight: 700; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; }
.pictures img { max-width: 100%; width: 600px; height: auto; }
"""
