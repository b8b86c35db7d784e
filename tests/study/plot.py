"""Plots as SVG files: lines or points over two logarithmic axes, bars of ratios. No library."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50
NAMES, BAR = 170, 10  # of bars: the width of their rows' names, their height
COLORS = ("#1f6fb2", "#d1495b", "#3a9d5d", "#8d6cab", "#c98a1b", "#5a6570", "#17a2b8")


@dataclass(frozen=True)
class Series:
    """Points (x, y) > 0. joined: a line through them; else marks, each with its label if any."""

    name: str
    points: Sequence[tuple[float, float]]
    joined: bool = True
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Axis:
    """A logarithmic axis from low to high, of `pixels` between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten inside, or also 2 and 5 times these where there are few."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        factors = (1,) if len(powers) > 3 else (1, 2, 5)
        values = [factor * 10.0**power for power in powers for factor in factors]
        return [value for value in values if self.low <= value <= self.high]


def _around(values: Sequence[float], start: float, end: float) -> Axis:
    low, high = min(values) / 1.3, max(values) * 1.3
    return Axis(low, high, start, end)


def svg(title: str, x_name: str, y_name: str, series: Sequence[Series]) -> str:
    """One plot. Raises ValueError if there are no points."""
    points = [point for each in series for point in each.points]
    if not points:
        raise ValueError(f"{title}: there is nothing to plot")
    x = _around([point[0] for point in points], LEFT, WIDTH - RIGHT)
    y = _around([point[1] for point in points], HEIGHT - BOTTOM, TOP)
    body = [*_frame(title, x_name, y_name, x, y)]
    for number, each in enumerate(series):
        body += _drawn(each, COLORS[number % len(COLORS)], x, y)
        body += _legend(each.name, COLORS[number % len(COLORS)], number)
    return _page(body, HEIGHT)


def _page(body: Sequence[str], height: int) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">'
    )
    back = f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([head, back, *body, "</svg>", ""])


@dataclass(frozen=True)
class Bars:
    """A ratio > 0 for each row, None where there is none."""

    name: str
    values: Sequence[float | None]


def bars(title: str, rows: Sequence[str], series: Sequence[Bars]) -> str:
    """For each row a bar of each series, from 1 to its ratio on a logarithmic axis, to the left
    where it is less. Raises ValueError if there are none.
    """
    values = [value for each in series for value in each.values if value is not None]
    if not values:
        raise ValueError(f"{title}: there is nothing to plot")
    step = BAR * len(series) + 8
    height = max(TOP + step * len(rows) + BOTTOM, TOP + 18 * len(series) + BOTTOM)
    bottom = TOP + step * len(rows)
    x = _around([1.0, *values], NAMES, WIDTH - RIGHT)
    body = [_text((x.start + x.end) / 2, 22, title, "middle", ' font-size="15"')]
    for value in x.ticks():
        color = "#444444" if value == 1 else "#e4e4e4"
        body.append(_line((x.at(value), TOP), (x.at(value), bottom), color))
        body.append(_text(x.at(value), bottom + 16, f"{shown(value)}x", "middle"))
    for number, row in enumerate(rows):
        top = TOP + step * number + 4
        body.append(_text(NAMES - 6, top + BAR * len(series) / 2 + 4, row, "end"))
        for place, each in enumerate(series):
            if (value := each.values[number]) is not None:
                hint = f"{each.name}: {value:.2f}x"
                body.append(_bar(x, value, top + BAR * place, COLORS[place % len(COLORS)], hint))
    for number, each in enumerate(series):
        body += _legend(each.name, COLORS[number % len(COLORS)], number)
    return _page(body, height)


def _bar(x: Axis, value: float, top: float, color: str, hint: str) -> str:
    left, right = sorted((x.at(1.0), x.at(value)))
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{BAR - 2}" '
        f'fill="{color}"><title>{escape(hint)}</title></rect>'
    )


def _text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(words)}</text>'


def _line(a: tuple[float, float], b: tuple[float, float], color: str) -> str:
    ends = f'x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}"'
    return f'<line {ends} stroke="{color}"/>'


def _frame(title: str, x_name: str, y_name: str, x: Axis, y: Axis) -> Iterator[str]:
    yield _text((x.start + x.end) / 2, 22, title, "middle", ' font-size="15"')
    yield _text((x.start + x.end) / 2, HEIGHT - 12, x_name, "middle")
    middle = (y.start + y.end) / 2
    yield _text(16, middle, y_name, "middle", f' transform="rotate(-90 16 {middle:.1f})"')
    for value in x.ticks():
        yield _line((x.at(value), y.start), (x.at(value), y.end), "#e4e4e4")
        yield _text(x.at(value), y.start + 16, shown(value), "middle")
    for value in y.ticks():
        yield _line((x.start, y.at(value)), (x.end, y.at(value)), "#e4e4e4")
        yield _text(x.start - 6, y.at(value) + 4, shown(value), "end")
    yield _line((x.start, y.start), (x.end, y.start), "#444444")
    yield _line((x.start, y.start), (x.start, y.end), "#444444")


def _drawn(series: Series, color: str, x: Axis, y: Axis) -> Iterator[str]:
    places = [(x.at(point[0]), y.at(point[1])) for point in series.points]
    if series.joined and len(places) > 1:
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
    for number, (px, py) in enumerate(places):
        label = series.labels[number] if series.labels else ""
        hint = f"<title>{escape(f'{series.name}: {label}')}</title>" if label else ""
        yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" fill="{color}">{hint}</circle>'


def _legend(name: str, color: str, number: int) -> Iterator[str]:
    height = TOP + 8 + 18 * number
    yield f'<rect x="{WIDTH - RIGHT + 14}" y="{height - 9}" width="10" height="10" fill="{color}"/>'
    yield _text(WIDTH - RIGHT + 30, height, name)


def shown(value: float) -> str:
    """A number with its unit of thousands: 0.5, 20, 3K, 10M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= unit:
            return f"{value / unit:g}{name}"
    return f"{value:g}"
