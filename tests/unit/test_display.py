"""What the user sees of a run: lines with node names, and epochs with their own metrics."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from sparktrain.driver import state
from sparktrain.driver.display import Display, LiveDisplay, PlainDisplay, make_display
from sparktrain.driver.plan import Plan
from sparktrain.settings import Settings
from sparktrain.spec import make_nodes
from sparktrain.wire.messages import Bye, Joined, Message, Progress, Returned

CHIEF, WORKER = "chief:0", "worker:0"


def make_plan(progress: str = "auto") -> Plan:
    return Plan(
        run_id="r1",
        run_dir=Path("/runs/r1"),
        nodes=make_nodes(2),
        num_workers=2,
        function_name="train",
        function=b"",
        env={},
        max_restarts=0,
        timeout_s=None,
        settings=Settings(progress=progress),
    )


class Screen:
    """A display, the snapshot it shows, and the text it wrote."""

    def __init__(self, cls: type[Display], is_terminal: bool = False) -> None:
        self._file = io.StringIO()
        console = Console(
            file=self._file,
            force_terminal=is_terminal,
            width=120,
            highlight=False,
            soft_wrap=True,
        )
        self.display = cls(make_plan(), console)
        self.snapshot = state.start_run("r1", make_nodes(2))

    def tell(self, *messages: Message, node: str = CHIEF) -> None:
        """Messages that arrive between two updates of the display."""
        for message in messages:
            self.snapshot = state.apply(self.snapshot, node, self.snapshot.attempt, message)
        self.display.update(self.snapshot, [])

    def restart(self) -> None:
        self.snapshot = state.start_attempt(self.snapshot, self.snapshot.attempt + 1)
        self.display.update(self.snapshot, [])

    def say(self, *lines: tuple[str, str]) -> None:
        self.display.update(self.snapshot, list(lines))

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def epochs(self) -> list[str]:
        return [line for line in self.lines if " epoch " in line]


def begin(epoch: int) -> Progress:
    return Progress(epoch=epoch, epochs=3, step=0, steps=10)


def end(epoch: int) -> Progress:
    """The loss of an epoch is its number, so that lines can be checked."""
    return Progress(
        epoch=epoch, epochs=3, step=10, steps=10, metrics={"loss": float(epoch)}, examples_per_s=1e4
    )


JOINED = Joined(host="host-1", pid=1)


def test_lines_carry_the_name_of_their_node() -> None:
    screen = Screen(PlainDisplay)
    screen.say((CHIEF, "hello"), (WORKER, "hello [bold]too[/bold] :smile:"), (CHIEF, ""))
    assert screen.text == "chief:0 hello\nworker:0 hello [bold]too[/bold] :smile:\nchief:0 \n"


def test_colours_a_node_prints_are_kept_on_a_terminal_and_left_out_elsewhere() -> None:
    plain, terminal = Screen(PlainDisplay), Screen(PlainDisplay, is_terminal=True)
    for screen in (plain, terminal):
        screen.say((CHIEF, "\x1b[31mred\x1b[0m"))
    assert plain.text == "chief:0 red\n"
    assert "\x1b[31mred" in terminal.text


def test_long_lines_are_not_broken() -> None:
    screen = Screen(PlainDisplay)
    screen.say((CHIEF, "x" * 500))
    assert screen.lines == [f"chief:0 {'x' * 500}"]


def test_a_run_begins_and_ends_with_its_name_and_place() -> None:
    screen = Screen(PlainDisplay)
    with screen.display as display:
        display.note("Restart 1 of 2.")
        display.finish(screen.snapshot, 2)
    assert screen.lines[:3] == [
        "sparktrain run r1: train on chief:0, worker:0",
        "sparktrain run directory: /runs/r1",
        "sparktrain Restart 1 of 2.",
    ]
    assert screen.lines[3].startswith("sparktrain run r1 done in 0.")
    assert screen.lines[3].endswith(" s, 2 restarts")


def test_each_status_is_shown_once() -> None:
    screen = Screen(PlainDisplay)
    screen.say()
    screen.tell(JOINED)
    screen.say()
    screen.tell(Returned())
    screen.tell(Bye())
    assert screen.lines == [
        "chief:0 [running on host-1]",
        "chief:0 [returned on host-1]",
        "chief:0 [done on host-1]",
    ]


def test_each_epoch_is_shown_once_with_its_own_metrics_when_it_is_over() -> None:
    screen = Screen(PlainDisplay)
    screen.tell(JOINED)
    for epoch in (1, 2, 3):
        screen.tell(begin(epoch))
        screen.tell(end(epoch))
    assert len(screen.epochs()) == 2  # the third may still go on
    screen.tell(Returned())
    assert screen.epochs() == [
        f"chief:0 epoch {epoch}/3  loss {epoch}  10,000 examples/s" for epoch in (1, 2, 3)
    ]


def test_epochs_of_several_nodes_are_told_apart() -> None:
    screen = Screen(PlainDisplay)
    for node, loss in ((CHIEF, 0.5), (WORKER, 0.75)):
        screen.tell(JOINED, begin(1), node=node)
        screen.tell(Progress(epoch=1, epochs=3, metrics={"loss": loss}), node=node)
        screen.tell(begin(2), node=node)
    assert screen.epochs() == ["chief:0 epoch 1/3  loss 0.5", "worker:0 epoch 1/3  loss 0.75"]


def is_right(line: str) -> bool:
    """Whether the loss in a line is that of its epoch."""
    words = line.split()
    return words[words.index("epoch") + 1].split("/")[0] == words[words.index("loss") + 1]


BURSTS: dict[str, list[list[Message]]] = {
    "epochs between two updates": [
        [JOINED, begin(1)],
        [end(1), begin(2), end(2), begin(3)],
        [end(3)],
        [Returned()],
    ],
    "last epoch and return at once": [
        [JOINED, begin(1)],
        [end(1), begin(2)],
        [end(2), begin(3), end(3), Returned()],
    ],
    "return and bye at once": [
        [JOINED, begin(1)],
        [end(1), begin(2)],
        [end(2), begin(3)],
        [end(3), Returned(), Bye()],
    ],
}


@pytest.mark.parametrize("bursts", BURSTS.values(), ids=BURSTS.keys())
@pytest.mark.xfail(strict=True, reason="PlainDisplay.update takes metrics of the newest epoch")
def test_quick_epochs_are_shown_with_their_own_metrics_too(bursts: list[list[Message]]) -> None:
    screen = Screen(PlainDisplay)
    for messages in bursts:
        screen.tell(*messages)
    assert screen.epochs()
    assert all(is_right(line) for line in screen.epochs())
    assert any("epoch 3/3" in line for line in screen.epochs())


def test_a_restart_tells_nothing_of_the_epoch_that_was_cut_off() -> None:
    screen = Screen(PlainDisplay)
    screen.tell(JOINED, begin(1))
    screen.tell(end(1), begin(2))
    screen.restart()
    screen.tell(JOINED, begin(2))
    screen.tell(end(2), begin(3))
    assert [line.split("  ")[0] for line in screen.epochs()] == [
        "chief:0 epoch 1/3",
        "chief:0 epoch 2/3",
    ]
    assert all(is_right(line) for line in screen.epochs())


def test_off_prints_nothing() -> None:
    screen = Screen(Display, is_terminal=True)
    with screen.display as display:
        screen.say((CHIEF, "hello"))
        screen.tell(JOINED, begin(1), end(1), begin(2), Returned())
        display.note("a note")
        display.finish(screen.snapshot, 1)
    assert screen.text == ""


@pytest.mark.parametrize(
    ("progress", "terminal", "cls"),
    [
        ("off", "1", Display),
        ("plain", "1", PlainDisplay),
        ("live", "", LiveDisplay),
        ("auto", "1", LiveDisplay),
        ("auto", "", PlainDisplay),
    ],
)
def test_the_display_is_chosen_by_the_setting_and_the_terminal(
    progress: str, terminal: str, cls: type[Display], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", terminal)
    assert type(make_display(make_plan(progress))) is cls


def test_everything_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with make_display(make_plan("plain")) as display:
        display.update(state.start_run("r1", make_nodes(2)), [(CHIEF, "hello")])
    out, err = capsys.readouterr()
    assert out == ""
    assert "chief:0 hello\n" in err
