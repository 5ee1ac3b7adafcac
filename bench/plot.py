"""A chart of curves over two logarithmic axes, as an SVG file of a few kilobytes.  Needs nothing but the standard library."""

import math
from collections.abc import Sequence
from pathlib import Path

Curve = tuple[str, str, Sequence[float], Sequence[float]]  # label, colour, x, y

_WIDTH, _HEIGHT = 800, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 225, 40, 55


def _decades(low: float, high: float) -> list[float]:
    return [10.0**k for k in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]


def _label(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ") if value >= 1 else f"{value:g}"


def _text(x: float, y: float, text: str, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{text}</text>'


def log_log(path: Path, title: str, x_title: str, y_title: str, y_range: tuple[float, float], curves: Sequence[Curve]) -> None:
    """Writes the chart; labels stand beside the ends of the curves, pushed apart where they would touch."""
    x_range = min(min(c[2]) for c in curves), max(max(c[2]) for c in curves)

    def place(value: float, bounds: tuple[float, float], begin: float, end: float) -> float:
        part = math.log(value / bounds[0]) / math.log(bounds[1] / bounds[0])
        return begin + part * (end - begin)

    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>', _text(_LEFT, 24, title, "start", ' font-weight="bold"')]
    for x in _decades(*x_range):
        at = place(x, x_range, _LEFT, right)
        parts.append(f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="#ddd"/>')
        parts.append(_text(at, bottom + 18, _label(x)))
    for y in _decades(*y_range):
        at = place(y, y_range, bottom, _TOP)
        parts.append(f'<path d="M{_LEFT} {at:.1f}H{right}" stroke="{"#999" if y == 1 else "#ddd"}"/>')
        parts.append(_text(_LEFT - 8, at + 4, _label(y), "end"))
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 12, x_title))
    middle = (_TOP + bottom) / 2
    parts.append(_text(18, middle, y_title, extra=f' transform="rotate(-90 18 {middle:.0f})"'))
    label_at = -math.inf
    for label, colour, xs, ys in sorted(curves, key=lambda c: -c[3][-1]):
        points = [f"{place(x, x_range, _LEFT, right):.1f} {place(y, y_range, bottom, _TOP):.1f}" for x, y in zip(xs, ys)]
        parts.append(f'<path d="M{" L".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        label_at = max(label_at + 17, float(points[-1].split()[1]) + 4)
        parts.append(_text(right + 8, label_at, label, "start", f' fill="{colour}"'))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13">'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([head, *parts, "</svg>"]) + "\n")
