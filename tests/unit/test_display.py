"""What the user sees of a run: lines with node names, and epochs with their own metrics."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sparktrain.driver import state
from sparktrain.driver.display import Display, PlainDisplay, Shown, describe
from sparktrain.driver.plan import Plan
from sparktrain.wire.message import Message
from sparktrain.wire.messages import Bye, Joined, Progress, Returned

CHIEF, WORKER = "chief:0", "worker:0"


class Screen:
    """A display, the snapshot it shows, and the text it wrote."""

    def __init__(self, plan: Plan, cls: type[Display], is_terminal: bool = False) -> None:
        self._file = io.StringIO()
        console = Console(
            file=self._file,
            force_terminal=is_terminal,
            width=120,
            highlight=False,
            soft_wrap=True,
        )
        self.display = cls(plan, console)
        self.snapshot = state.start_run(plan.run_id, plan.nodes)

    def tell(self, *messages: Message, node: str = CHIEF) -> None:
        """Messages that arrive between two updates; the monitor hands on the ends of epochs."""
        shown: list[Shown] = []
        for message in messages:
            self.snapshot = state.apply(self.snapshot, node, self.snapshot.attempt, message)
            if isinstance(message, Progress) and message.ended:
                shown.append((node, message))
        self.display.update(self.snapshot, shown)

    def restart(self) -> None:
        self.snapshot = state.start_attempt(self.snapshot, self.snapshot.attempt + 1)
        self.display.update(self.snapshot, [])

    def say(self, *shown: Shown) -> None:
        self.display.update(self.snapshot, list(shown))

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    def epochs(self) -> list[str]:
        return [line for line in self.lines if " epoch " in line]


@pytest.fixture
def screen(plan: Plan) -> Screen:
    """Plain lines, and no terminal."""
    return Screen(plan, PlainDisplay)


def begin(epoch: int) -> Progress:
    return Progress(epoch=epoch, epochs=3, step=0, steps=10)


def end(epoch: int) -> Progress:
    """The loss of an epoch is its number, so that lines can be checked."""
    metrics = {"loss": float(epoch)}
    return Progress(epoch, 3, 10, 10, metrics, examples_per_s=1e4, ended=True)


def line_of(epoch: int) -> str:
    return f"chief:0 epoch {epoch}/3  loss {epoch}  10,000 examples/s"


JOINED = Joined(host="host-1", pid=1)


def test_lines_carry_the_name_of_their_node(screen: Screen) -> None:
    screen.say((CHIEF, "hello"), (WORKER, "hello [bold]too[/bold] :smile:"), (CHIEF, ""))
    assert screen.text == "chief:0 hello\nworker:0 hello [bold]too[/bold] :smile:\nchief:0 \n"


def test_colours_a_node_prints_are_kept_on_a_terminal_and_left_out_elsewhere(plan: Plan) -> None:
    plain, terminal = Screen(plan, PlainDisplay), Screen(plan, PlainDisplay, is_terminal=True)
    for screen in (plain, terminal):
        screen.say((CHIEF, "\x1b[31mred\x1b[0m"))
    assert plain.text == "chief:0 red\n"
    assert "\x1b[31mred" in terminal.text


def test_long_lines_are_not_broken(screen: Screen) -> None:
    screen.say((CHIEF, "x" * 500))
    assert screen.lines == [f"chief:0 {'x' * 500}"]


def test_a_run_begins_and_ends_with_its_name_and_place(screen: Screen) -> None:
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


def test_each_status_is_shown_once(screen: Screen) -> None:
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


def test_each_epoch_is_shown_once_with_its_own_metrics_when_it_is_over(screen: Screen) -> None:
    screen.tell(JOINED)
    for epoch in (1, 2, 3):
        screen.tell(begin(epoch))
        screen.tell(Progress(epoch, 3, 5, 10, {"loss": 9.0}))
        assert len(screen.epochs()) == epoch - 1
        screen.tell(end(epoch))
        assert len(screen.epochs()) == epoch
    screen.say()
    screen.tell(Returned())
    screen.tell(Bye())
    assert screen.epochs() == [line_of(epoch) for epoch in (1, 2, 3)]


def test_lines_and_epochs_are_shown_in_the_order_of_their_arrival(screen: Screen) -> None:
    screen.say((CHIEF, "a"), (CHIEF, end(1)), (WORKER, "b"), (CHIEF, end(2)), (CHIEF, "c"))
    assert screen.lines == ["chief:0 a", line_of(1), "worker:0 b", line_of(2), "chief:0 c"]


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress(epoch=2, epochs=5), "epoch 2/5"),
        (Progress(epoch=2, metrics={"loss": 0.123456}), "epoch 2  loss 0.1235"),
        (Progress(epoch=1, metrics={"loss": float("nan")}, steps_per_s=2.26), "loss nan"),
        (Progress(epoch=1, metrics={"f1[/macro]": 0.5}), "f1[/macro] 0.5"),
        (Progress(epoch=1, steps_per_s=2.26), "epoch 1  2.3 steps/s"),
        (Progress(epoch=1, steps_per_s=2.26, examples_per_s=12345.6), "12,346 examples/s"),
    ],
)
def test_the_line_of_an_epoch_has_what_is_known(
    progress: Progress, text: str, screen: Screen
) -> None:
    assert text in describe(progress)
    screen.say((CHIEF, progress))
    assert screen.lines == [f"chief:0 {describe(progress)}"]


def test_epochs_of_several_nodes_are_told_apart(screen: Screen) -> None:
    for node, loss in ((CHIEF, 0.5), (WORKER, 0.75)):
        screen.tell(JOINED, begin(1), node=node)
        screen.tell(Progress(epoch=1, epochs=3, metrics={"loss": loss}, ended=True), node=node)
        screen.tell(begin(2), node=node)
    assert screen.epochs() == ["chief:0 epoch 1/3  loss 0.5", "worker:0 epoch 1/3  loss 0.75"]


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
def test_quick_epochs_are_shown_with_their_own_metrics_too(
    bursts: list[list[Message]], screen: Screen
) -> None:
    for messages in bursts:
        screen.tell(*messages)
    assert screen.epochs() == [line_of(1), line_of(2), line_of(3)]


def test_a_restart_tells_nothing_of_the_epoch_that_was_cut_off(screen: Screen) -> None:
    screen.tell(JOINED, begin(1))
    screen.tell(end(1), begin(2))
    screen.restart()
    assert screen.epochs() == [line_of(1)]
    screen.tell(JOINED, begin(2))
    screen.tell(end(2), begin(3))
    assert screen.epochs() == [line_of(1), line_of(2)]


def test_off_prints_nothing(plan: Plan) -> None:
    screen = Screen(plan, Display, is_terminal=True)
    with screen.display as display:
        screen.say((CHIEF, "hello"), (CHIEF, end(1)))
        screen.tell(JOINED, begin(1), end(1), begin(2), Returned())
        display.note("a note")
        display.finish(screen.snapshot, 1)
    assert screen.text == ""
