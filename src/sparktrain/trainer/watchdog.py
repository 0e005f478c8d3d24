"""A second process that ends the trainer's group when the agent is gone.

The trainer notices that itself, unless its function never lets go of the interpreter. The
watchdog does nothing but wait, so it always notices; and it takes along what the function
started.
"""

from __future__ import annotations

import os
import signal


def start_watchdog(descriptor: int) -> None:
    """Forks the watchdog; to be called before anything else, while there are no threads.

    Args:
        descriptor: The reading end of a pipe whose other end only the agent holds.
    """
    child = os.fork()
    if child == 0:
        # Forked twice: it must not be a child of the trainer, whose function may wait for all
        # of its own.
        if os.fork() == 0:
            _watch(descriptor)
        os._exit(0)
    os.waitpid(child, 0)
    os.close(descriptor)


def _watch(descriptor: int) -> None:
    # Nothing of the trainer may stay open on its account, its output least of all.
    os.closerange(0, descriptor)
    os.closerange(descriptor + 1, 4096)
    while os.read(descriptor, 1):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)
