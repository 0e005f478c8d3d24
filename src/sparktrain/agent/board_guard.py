"""`python board_guard.py FILE KEPT COMMAND...`: runs TensorBoard, tells where it is, and ends it.

Standard input is a pipe of which the starter holds the other end: it closes with that process,
however it ended, and everything in this process' group goes then; unless KEPT is 1. In any case
it goes when FILE, which says where the board is, is removed or another board's, and with this
process, of which COMMAND has such a pipe; a board that FILE is about at the start is ended.
Standard output gets one line of JSON: the URL and the process id, or the problem. Needs the
standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

LOOK_S = 0.5
_URL = re.compile(r" at (https?://\S+)")


def main(file: Path, is_kept: bool, command: list[str]) -> int:
    if is_kept and os.fork():
        os._exit(0)  # nobody's child: its starter may go on or end
    signal.signal(signal.SIGTERM, lambda *_: _remove_and_end(file))
    _end_earlier(file)
    board = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    if not is_kept:
        threading.Thread(target=_follow_starter, args=(file,), daemon=True).start()
    lines = iter(board.stderr or ())
    url, said = _find_url(lines)
    if url is None:
        _tell({"problem": said or f"it ended with exit code {board.wait()}"})
        _end()
    try:
        _write(file, {"url": url, "pid": os.getpid(), "group": os.getpgid(0)})
    except OSError as error:
        if is_kept:  # nobody could end it
            _tell({"problem": f"{file} cannot be written: {error}"})
            _end()
    else:
        threading.Thread(target=_follow_file, args=(file,), daemon=True).start()
    _tell({"url": url, "pid": board.pid})
    for _ in lines:  # a full pipe would stop it
        pass
    code = board.wait()
    _remove(file)
    return code


def _end_earlier(file: Path) -> None:
    """Ends the board that an earlier run has kept: it may have the port that this one shall."""
    try:
        file.unlink()
    except OSError:  # there is none, or nobody may end it
        return
    time.sleep(2 * LOOK_S)


def _find_url(lines: Iterable[bytes]) -> tuple[str | None, str]:
    said: list[str] = []
    for line in lines:
        text = line.decode(errors="replace").strip()
        if found := _URL.search(text):
            return found[1], ""
        said = [*said[-3:], text]
    return None, " ".join(said)[-500:]


def _tell(values: dict[str, object]) -> None:
    """Says it, and lets go of the starter."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(values).encode() + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    os.close(null)


def _write(file: Path, values: dict[str, object]) -> None:
    partial = file.with_name(f"{file.name}.{values['group']}")
    partial.write_text(json.dumps(values) + "\n")
    partial.replace(file)


def _is_own(file: Path) -> bool:
    try:
        return bool(json.loads(file.read_text())["group"] == os.getpgid(0))
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True  # a share that is gone for a moment says nothing


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):
        if _is_own(file):
            file.unlink()


def _follow_starter(file: Path) -> None:
    while os.read(0, 1024):
        pass
    _remove_and_end(file)


def _follow_file(file: Path) -> None:
    while _is_own(file):
        time.sleep(LOOK_S)
    _end()


def _remove_and_end(file: Path) -> None:
    _remove(file)
    _end()


def _end() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:]))
