"""Where a program writes what TensorBoard shows."""

from __future__ import annotations

import os

#: Of the experiment that runs in this process.
_current: str | None = None
#: Set by sparktrain's nodes.
VARIABLE = "SPARKTRAIN_LOG_DIR"


def logdir() -> str:
    """A folder for events: of this trial, of this node's cluster, or of the experiment begun.

    A path that TensorFlow can write to. Where the experiment is in a store that it cannot, or
    with local_logdir=True, it is a folder of the host, and copied to the experiment at the end.
    """
    from sparktrain.errors import ConfigError

    found = _current or os.environ.get(VARIABLE)
    if found is None:
        raise ConfigError(
            problem="tensorboard.logdir() was called where no experiment runs.",
            advice="Call it in the function that experiment.launch(), a search or TFCluster.run()"
            " runs, or behind experiment.begin().",
        )
    os.makedirs(found, exist_ok=True)  # noqa: PTH103 (as text)
    return found


def interactive_debugger() -> None:
    """Of TensorFlow 1's debugger, which TensorFlow does not have any more."""
    raise _make_error("interactive_debugger")


def non_interactive_debugger() -> None:
    """Of TensorFlow 1's debugger, which TensorFlow does not have any more."""
    raise _make_error("non_interactive_debugger")


def _make_error(what: str) -> NotImplementedError:
    return NotImplementedError(
        f"tensorboard.{what}() was for the debugger of TensorFlow 1. Call"
        " tf.debugging.experimental.enable_dump_debug_info(tensorboard.logdir()) instead."
    )


def _set(path: str | None) -> None:
    global _current
    _current = path
