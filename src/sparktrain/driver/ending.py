"""`python ending.py COMMAND...`: runs a command that ends when the process that started it does.

Standard input is a pipe of which the starter holds the other end: it closes with that process,
however it ended. Everything in this process' group goes then. Needs the standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(command: list[str]) -> int:
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_watch, daemon=True).start()
    return process.wait()


def _watch() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
