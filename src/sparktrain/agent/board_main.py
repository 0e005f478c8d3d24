"""`python board_main.py OPTIONS...`: TensorBoard without TensorFlow.

The driver loads no TensorFlow, and folders are opened with fsspec, which knows more stores than
TensorFlow does. Needs TensorBoard only.
"""

from __future__ import annotations

import sys
import types


def main() -> None:
    # What TensorBoard itself looks for before it loads TensorFlow.
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    from tensorboard.main import run_main

    run_main()


if __name__ == "__main__":
    main()
