"""`python board_main.py [--guarded] OPTIONS...`: TensorBoard without TensorFlow.

The driver loads no TensorFlow, and folders are opened with fsspec, which knows more stores than
TensorFlow does. Needs TensorBoard only. With --guarded, standard input is a pipe of which the
guard holds the other end: it closes with that process, however it ended, and the group goes then.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import types

GUARDED = "--guarded"


def main() -> None:
    if sys.argv[1:2] == [GUARDED]:
        del sys.argv[1]
        threading.Thread(target=_follow_guard, daemon=True).start()
    # What TensorBoard itself looks for before it loads TensorFlow.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    from tensorboard.main import run_main

    run_main()


def _follow_guard() -> None:
    while os.read(0, 1024):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    main()
