"""Records `sparktrain demo` in a real terminal (tmux) as docs/images/demo.svg."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH, HEIGHT = 120, 34
TITLE = "$ make demo"


def tmux(*words: str) -> str:
    return subprocess.run(["tmux", *words], check=True, capture_output=True, text=True).stdout


def main() -> None:
    command = Path(sys.executable).with_name("sparktrain")
    name = f"record-{time.time_ns()}"
    with tempfile.TemporaryDirectory() as folder:
        size = ["-x", str(WIDTH), "-y", str(HEIGHT)]
        tmux("new-session", "-d", "-s", name, "-c", folder, *size)
        tmux("send-keys", "-t", name, f"PS1=; clear; {command} demo; echo all done", "Enter")
        deadline = time.monotonic() + 300
        while "\nall done" not in tmux("capture-pane", "-t", name, "-p"):
            if time.monotonic() > deadline:
                raise TimeoutError("the demo did not end")
            time.sleep(0.5)
        screen = tmux("capture-pane", "-t", name, "-p", "-e", "-J")
        tmux("kill-session", "-t", name)
        # Paths of the machine it was recorded on say nothing.
        screen = screen.replace(folder, "~")
    lines = [line for line in screen.splitlines() if line.strip() and "all done" not in line]
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for line in lines:
        console.print(Text.from_ansi(re.sub(r"\s+$", "", line)))
    picture = console.export_svg(title=TITLE)
    # The picture must not fetch anything: any monospaced font will do.
    picture = re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)
    Path(__file__).with_name("demo.svg").write_text(picture)


if __name__ == "__main__":
    main()
