"""Copies the events of a node to a store that all can read, beside its training."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.trainer.events import FEED_FOLDER

if TYPE_CHECKING:
    from sparktrain.trainer.context import Context

#: How long the last copy may take.
CLOSE_S = 120.0


class EventCopies:
    """Copies in a thread: a store that hangs holds up no training. To be closed at the end.

    Whole files, if they have grown: stores of objects append nothing. The chief copies all of the
    log directory but the folders of other nodes.
    """

    def __init__(self, context: Context, url: str) -> None:
        self._folder = Path(context.log_dir)
        self._node = f"{context.role}-{context.index}"
        self._is_chief = context.is_chief
        self._url = url
        self._copied: dict[str, int] = {}
        self._is_broken = False
        self._thread = threading.Thread(target=self._work, name="sparktrain-events", daemon=True)
        self._has_begun = False
        self._is_wanted = threading.Event()
        self._is_closing = False

    def ask(self) -> None:
        """There is something new."""
        if not self._has_begun:
            self._has_begun = True
            self._thread.start()
        self._is_wanted.set()

    def close(self) -> None:
        """Copies what is new, and waits for that, but not for ever."""
        self._is_closing = True
        self.ask()
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            print(
                f"sparktrain: events were still being copied to {self._url} after {CLOSE_S:g} s;"
                f" what is missing there is in {self._folder}",
                flush=True,
            )

    def copy(self) -> None:
        """What is new; says so once if it cannot be."""
        try:
            self._copy()
        # Each store has errors of its own; and a copy must not end a fit.
        except Exception as error:
            if not self._is_broken:
                what = f"{type(error).__name__}: {error}"
                print(f"sparktrain: events are not copied to {self._url}: {what}", flush=True)
            self._is_broken = True

    def _work(self) -> None:
        is_last = False
        while not is_last:
            self._is_wanted.wait()
            self._is_wanted.clear()
            is_last = self._is_closing
            self.copy()

    def _copy(self) -> None:
        import fsspec

        for path in sorted(self._folder.rglob("*")) if self._folder.is_dir() else ():
            name = path.relative_to(self._folder).as_posix()
            if not path.is_file() or not self._is_own(path):
                continue
            size = path.stat().st_size
            if self._copied.get(name) == size:
                continue
            filesystem, target = fsspec.core.url_to_fs(f"{self._url}/{name}")
            filesystem.makedirs(str(Path(target).parent), exist_ok=True)
            filesystem.put_file(str(path), target)
            self._copied[name] = size

    def _is_own(self, path: Path) -> bool:
        parent = path.parent
        if parent.parent.name == FEED_FOLDER:
            return parent.name == self._node
        return self._is_chief


def make_copy_callback(keras: Any, copies: EventCopies) -> Any:
    """Behind all callbacks that write events."""

    class CopyEvents(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            copies.ask()

        def on_train_end(self, logs: Any = None) -> None:
            copies.ask()

    return CopyEvents()
