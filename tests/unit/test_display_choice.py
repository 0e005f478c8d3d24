"""Which display a run gets: by its setting, and by the terminal there is."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
from rich.console import Console

from sparktrain.driver import display, state
from sparktrain.driver.display import (
    Display,
    GuardedDisplay,
    LiveDisplay,
    PlainDisplay,
    make_display,
)
from sparktrain.driver.plan import Plan
from sparktrain.settings import Settings
from sparktrain.spec import make_nodes

CHIEF = "chief:0"


@pytest.mark.parametrize(
    ("progress", "terminal", "cls"),
    [
        ("off", "1", Display),
        ("off", "", Display),
        ("plain", "1", PlainDisplay),
        ("live", "1", LiveDisplay),
        ("live", "", PlainDisplay),
        ("auto", "1", LiveDisplay),
        ("auto", "", PlainDisplay),
    ],
)
def test_the_display_is_chosen_by_the_setting_and_the_terminal(
    progress: str,
    terminal: str,
    cls: type[Display],
    make_plan: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", terminal)
    assert type(make_display(make_plan(settings=Settings(progress=progress))).inner) is cls


@pytest.mark.parametrize(
    ("progress", "cls"),
    [("live", LiveDisplay), ("auto", LiveDisplay), ("plain", PlainDisplay), ("off", Display)],
)
def test_a_notebook_can_be_redrawn_without_a_terminal(
    progress: str,
    cls: type[Display],
    make_plan: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notebook = functools.partial(Console, force_jupyter=True, force_terminal=False)
    monkeypatch.setattr(display, "Console", notebook)
    assert type(make_display(make_plan(settings=Settings(progress=progress))).inner) is cls


def test_everything_goes_to_standard_error(
    make_plan: Callable[..., Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    with make_display(make_plan(settings=Settings(progress="plain"))) as shown:
        shown.update(state.start_run("r1", make_nodes(2)), [(CHIEF, "hello")])
    out, err = capsys.readouterr()
    assert out == ""
    assert "chief:0 hello\n" in err


class BrokenDisplay(Display):
    """Fails as rich does when the reader of its pipe is gone."""

    def update(self, snapshot: state.Snapshot, shown: list[display.Shown]) -> None:
        raise SystemExit(1)

    def note(self, text: str) -> None:
        raise AssertionError("nothing may be shown behind the first failure")


def test_a_display_that_fails_is_silent_from_then_on(make_plan: Callable[..., Plan]) -> None:
    plan = make_plan()
    console = Console(stderr=True)
    with GuardedDisplay(plan, console, BrokenDisplay(plan, console)) as guarded:
        guarded.update(state.start_run("r1", plan.nodes), [])
        guarded.note("unseen")
        guarded.finish(state.start_run("r1", plan.nodes), 0)
