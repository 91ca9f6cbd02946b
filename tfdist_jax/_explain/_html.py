"""An explanation as a page: tables, with pictures of the mesh, of memory and of what is communicated."""

import html
import itertools
from collections.abc import Sequence

from jax.sharding import Mesh

from tfdist_jax._explain._mesh_axes import MeshBlock, mesh_blocks
from tfdist_jax._explain._sections import Section
from tfdist_jax._pipeline import Kind, Schedule

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #667080; --line: #d5dae1; --fill: #e8effa; --bar: #3b6fc4; --page: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ee; --soft: #96a0ae; --line: #3a424d; --fill: #26364f; --bar: #6f9de8; --page: #14181d }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page) }
body { max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: 13px }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 500 }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.mesh svg { margin: 1rem 1.5rem 0 0 }
p { color: var(--soft); margin: .5rem 0 }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif } svg .soft { fill: var(--soft) }
.tick { stroke: var(--page) } .tick.F { fill: #3b6fc4 } .tick.B, .tick.I { fill: #2f8f6b } .tick.W { fill: #c98a2b }
.device { fill: var(--fill); stroke: var(--line) } .bar { fill: var(--bar) }
"""
_CELL, _GAP, _LABEL, _BAR = 38, 4, 70, 160


def make_page(name: str, mesh: Mesh | None, sections: Sequence[Section]) -> str:
    """Return the page's HTML, which refers to nothing outside of it.

    Args:
        name: The step's name.
        mesh: The devices, if the step runs on the same ones each time.
        sections: What there is to say; the first is about the mesh.
    """
    first, *others = sections
    title = html.escape(name if mesh is None else f"{name}, on {mesh.size} x {mesh.devices.flat[0].device_kind}")
    body = _section(first, "" if mesh is None else _mesh_picture(mesh)) + "".join(map(_section, others))
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body><h1>{title}</h1>\n{body}</body></html>\n'


def _section(section: Section, picture: str = "") -> str:
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in section.notes)
    table = f'<div class="wide">{_table(section)}</div>' if section.rows else ""
    if section.schedule is not None:
        picture += _schedule_picture(section.schedule)
    return f"<h2>{html.escape(section.title)}</h2>\n{table}{picture}{notes}\n"


def _table(section: Section) -> str:
    longest = max(section.bars, default=0)
    kinds = [' class="number"' if heading.startswith("#") else "" for heading in section.columns]
    row = lambda tag, cells: "".join(
        f"<{tag}{kind}>{html.escape(cell.removeprefix('#'))}</{tag}>" for cell, kind in zip(cells, kinds, strict=True)
    )
    bars = [f"<td>{_bar(length / longest)}</td>" for length in section.bars] if longest else [""] * len(section.rows)
    rows = "".join(f"<tr>{row('td', cells)}{bar}</tr>\n" for cells, bar in zip(section.rows, bars, strict=True))
    return f"<table><tr>{row('th', section.columns)}{'<th></th>' if longest else ''}</tr>\n{rows}</table>"


def _bar(share: float) -> str:
    width = max(1, round(_BAR * share)) if share else 0
    return f'<svg width="{_BAR}" height="12"><rect class="bar" y="1" width="{width}" height="10" rx="2"/></svg>'


def _mesh_picture(mesh: Mesh) -> str:
    return f'<div class="wide mesh">{"".join(map(_block_picture, mesh_blocks(mesh)))}</div>'


def _schedule_picture(schedule: Schedule) -> str:
    """Draw what devices do: a row for each, from left to right, as wide as it takes; gaps are where they wait."""
    width, height = 18, 24
    long = {Kind.BACKWARD: 2}
    ticks = [max(sum(long.get(op.kind, 1) for op in cell) for cell in row) for row in schedule.ticks]
    starts = [0, *itertools.accumulate(ticks)]
    parts = []
    for row, start in zip(schedule.ticks, starts, strict=False):
        for device, cell in enumerate(row):
            x = start
            for operation in cell:
                size = long.get(operation.kind, 1)
                left, top = _LABEL + x * width, device * height
                parts.append(
                    f'<rect class="tick {operation.kind.value}" x="{left}" y="{top}" width="{size * width}" height="{height}">'
                    f"<title>{operation}</title></rect>"
                    f'<text x="{left + size * width / 2}" y="{top + 16}" text-anchor="middle">{operation.microbatch}</text>'
                )
                x += size
    labels = [
        f'<text class="soft" x="0" y="{device * height + 16}">stage {device}</text>'
        for device in range(schedule.num_devices)
    ]
    size = f'width="{_LABEL + starts[-1] * width}" height="{schedule.num_devices * height}"'
    return f'<div class="wide"><svg {size} role="img">{"".join(labels)}{"".join(parts)}</svg></div>\n'


def _block_picture(block: MeshBlock) -> str:
    """Draw the devices of two axes: one goes down, one to the right."""
    rows, columns = block.devices.shape
    step, top = _CELL + _GAP, 40
    cells = "".join(
        f'<rect class="device" x="{_LABEL + x * step}" y="{top + y * step}" width="{_CELL}" height="{_CELL}" rx="5"/>'
        f'<text x="{_LABEL + x * step + _CELL / 2}" y="{top + y * step + 23}" text-anchor="middle">{block.devices[y, x]}</text>'
        for y in range(rows)
        for x in range(columns)
    )
    labels = (
        f'<text x="0" y="14">{html.escape(block.title)}</text>'
        f'<text class="soft" x="{_LABEL}" y="32">{html.escape(block.columns)}</text>'
        f'<text class="soft" x="0" y="{top + 23}">{html.escape(block.rows)}</text>'
    )
    width, height = _LABEL + max(columns * step, 60), top + rows * step
    return f'<svg width="{width}" height="{height}" role="img">{labels}{cells}</svg>\n'
