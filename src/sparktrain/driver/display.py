"""What the user sees of a run: live rows on a terminal, plain lines elsewhere, or nothing.

Everything goes to standard error, so that standard output stays the user's.
"""

from __future__ import annotations

import time
from typing import Any, Literal

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sparktrain.driver.plan import Plan
from sparktrain.driver.state import NodeState, Snapshot
from sparktrain.wire.messages import Progress

#: A node's name with a line it printed, or with where it was at the end of an epoch.
Shown = tuple[str, str | Progress]

_COLORS = ("cyan", "green", "magenta", "yellow", "blue", "bright_red")


def make_display(plan: Plan) -> GuardedDisplay:
    """The display that the settings and the terminal ask for."""
    kind = plan.settings.progress
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if kind in ("auto", "live"):  # rows need a screen to be redrawn on
        kind = "live" if console.is_terminal or console.is_jupyter else "plain"
    inner = {"live": LiveDisplay, "plain": PlainDisplay, "off": Display}[kind](plan, console)
    return GuardedDisplay(plan, console, inner)


class Display:
    """Shows nothing; the base of the others. Use as a context manager."""

    def __init__(self, plan: Plan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._started = time.monotonic()
        self._colors = {
            node.name: _COLORS[position % len(_COLORS)] for position, node in enumerate(plan.nodes)
        }

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def update(self, snapshot: Snapshot, shown: list[Shown]) -> None:
        """Called a few times a second with the present state and what is new."""

    def note(self, text: str) -> None:
        """A sentence of the driver's own."""

    def finish(self, snapshot: Snapshot, num_restarts: int) -> None:
        """Called once, when the run is over and well."""


class GuardedDisplay(Display):
    """Passes everything on until it fails, then shows nothing: a closed pipe must not end a run."""

    def __init__(self, plan: Plan, console: Console, inner: Display) -> None:
        super().__init__(plan, console)
        #: What really shows; the silent one after a failure.
        self.inner = inner

    def __enter__(self) -> Display:
        self._try("__enter__")
        return self

    def __exit__(self, *exc: object) -> None:
        self._try("__exit__", *exc)

    def update(self, snapshot: Snapshot, shown: list[Shown]) -> None:
        self._try("update", snapshot, shown)

    def note(self, text: str) -> None:
        self._try("note", text)

    def finish(self, snapshot: Snapshot, num_restarts: int) -> None:
        self._try("finish", snapshot, num_restarts)

    def _try(self, name: str, *args: Any) -> None:
        try:
            getattr(self.inner, name)(*args)
        except (Exception, SystemExit):  # rich leaves with SystemExit when its pipe is closed
            self.inner = Display(self._plan, self._console)


class PlainDisplay(Display):
    """Lines only: what nodes print, and where they are at the end of each epoch."""

    def __init__(self, plan: Plan, console: Console) -> None:
        super().__init__(plan, console)
        self._shown: dict[str, tuple[int, str]] = {}

    def __enter__(self) -> Display:
        names = ", ".join(node.name for node in self._plan.nodes)
        self.note(f"run {self._plan.run_id}: {self._plan.function_name} on {names}")
        self.note(f"run directory: {self._plan.run_dir}")
        return self

    def update(self, snapshot: Snapshot, shown: list[Shown]) -> None:
        for name, what in shown:
            self._print(name, what if isinstance(what, str) else describe(what))
        for name, node in snapshot.nodes.items():
            now = (snapshot.attempt, node.status)
            if now != self._shown.get(name) and node.status != "waiting":
                self._print(name, f"[{node.status} on {node.host}]")
            self._shown[name] = now

    def note(self, text: str) -> None:
        self._console.print(Text.assemble(("sparktrain ", "bold"), text))

    def finish(self, snapshot: Snapshot, num_restarts: int) -> None:
        seconds = time.monotonic() - self._started
        restarts = f", {num_restarts} restarts" if num_restarts else ""
        self.note(f"run {self._plan.run_id} done in {seconds:.1f} s{restarts}")

    def _print(self, node: str, line: str) -> None:
        name = (f"{node} ", self._colors.get(node, ""))
        self._console.print(Text.assemble(name, Text.from_ansi(line)))


class LiveDisplay(PlainDisplay):
    """A row for each node, redrawn in place; lines scroll above it."""

    def __enter__(self) -> Display:
        super().__enter__()
        self._live = Live(console=self._console, refresh_per_second=8, redirect_stdout=False)
        self._live.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.__exit__(None, None, None)

    def update(self, snapshot: Snapshot, shown: list[Shown]) -> None:
        for name, what in shown:
            if isinstance(what, str):  # epochs are in the rows
                self._print(name, what)
        self._live.update(self._draw(snapshot))

    def finish(self, snapshot: Snapshot, num_restarts: int) -> None:
        self._live.update(self._draw(snapshot))
        self._live.stop()
        super().finish(snapshot, num_restarts)

    def _draw(self, snapshot: Snapshot) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold dim")
        for title in (
            "node",
            "host",
            "",
            "epoch",
            "step",
            "loss",
            "speed",
            "other metrics",
        ):
            justify: Literal["left", "right"] = "right" if title == "speed" else "left"
            table.add_column(title, no_wrap=title != "other metrics", justify=justify)
        for node in snapshot.nodes.values():
            table.add_row(*self._cells(node))
        return table

    def _cells(self, node: NodeState) -> list[Text]:
        where = node.progress
        loss = where.metrics.get("loss")
        others = [f"{k} {v:.4g}" for k, v in where.metrics.items() if k != "loss"]
        cells = [
            node.host,
            node.status,
            _of(where.epoch, where.epochs),
            _of(where.step, where.steps),
            "" if loss is None else f"{loss:.4f}",
            "  ".join((_speed(where), _wait(where))).strip(),
            "  ".join(others[:4]),
        ]
        # As Text: names of metrics may look like markup.
        name = Text(node.name, style=self._colors.get(node.name, ""))
        return [name, *(Text(cell) for cell in cells)]


def describe(where: Progress) -> str:
    """One line on how an epoch went."""
    metrics = "  ".join(f"{name} {value:.4g}" for name, value in where.metrics.items())
    parts = [f"epoch {_of(where.epoch, where.epochs)}", metrics, _speed(where), _wait(where)]
    return "  ".join(part for part in parts if part)


def _of(count: int | None, total: int | None) -> str:
    if count is None:
        return ""
    return f"{count}/{total}" if total else str(count)


def _speed(where: Progress) -> str:
    if where.examples_per_s is not None:
        return f"{where.examples_per_s:,.0f} examples/s"
    return f"{where.steps_per_s:,.1f} steps/s" if where.steps_per_s is not None else ""


def _wait(where: Progress) -> str:
    """The share of the time that steps waited for input."""
    return "" if where.input_wait is None else f"waits {where.input_wait:.0%}"
