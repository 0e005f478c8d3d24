"""The curves of a training, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparktrain.errors import ConfigError

_OWN = ("epoch",)
_WIDTH, _HEIGHT = 4.2, 3.2


def find_curves(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, list[float]]]:
    """Metric -> {"train": values, "validation": values}, in the order in which they came."""
    curves: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for name, value in row.items():
            if name in _OWN:
                continue
            is_held_out = name.startswith("val_")
            plain = name.removeprefix("val_")
            of = "validation" if is_held_out else "train"
            curves.setdefault(plain, {}).setdefault(of, []).append(value)
    return curves


def plot(rows: Sequence[Mapping[str, float]], path: str | None) -> Any:
    """A figure with a part for the loss and each metric; written to the path if there is one."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise ConfigError(
            problem="plot() needs matplotlib, which is not installed.",
            advice="pip install 'sparktrain[plot]'.",
        ) from error
    curves = find_curves(rows)
    names = sorted(curves, key=lambda name: (name != "loss", name))
    if not names:
        raise ConfigError(
            problem="This model has no history to plot.", advice="Only models of a fit have one."
        )
    # Not by pyplot: it would keep the figure, and wants a display.
    figure = Figure(figsize=(_WIDTH * len(names), _HEIGHT), layout="constrained")
    for number, name in enumerate(names, 1):
        axes = figure.add_subplot(1, len(names), number)
        for of, values in curves[name].items():
            axes.plot(range(1, len(values) + 1), values, marker=".", label=of)
        axes.set_title(name.replace("_", " "))
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        axes.legend()
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure
