"""Every Python example of the README and the docs is run; each page is one program."""

from __future__ import annotations

import ast
import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def find_program(page: Path) -> str:
    return "\n\n".join(BLOCK.findall(page.read_text()))


#: Runs every page as one program, all in one process: Spark starts once.
RUNNER = """
import sys
import sparktrain
sparktrain.session(num_executors=3)  # as many as the page that needs the most
for page in sys.argv[1:]:
    print("page", page, flush=True)
    exec(compile(open(page).read(), page, "exec"), {"__name__": "__main__"})
"""


def run(folder: Path, *command: str) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "SPARKTRAIN_RUNS_DIR"}
    answer = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=880,
    )
    assert answer.returncode == 0, answer.stdout[-4000:]
    return answer.stdout


#: Run with every change; the other pages are of the slow suite.
FIRST_PAGES = ("README.md",)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_examples_run(tmp_path: Path, is_first: bool) -> None:
    programs = []
    for page in PAGES:
        if (page.name in FIRST_PAGES) != is_first:
            continue
        if program := find_program(page):
            programs.append(tmp_path / f"{page.stem}.py")
            programs[-1].write_text(program)
    assert programs
    shown = run(tmp_path, "-c", RUNNER, *map(str, programs))
    assert shown.count("page ") >= len(programs)


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_are_programs(script: Path) -> None:
    assert ast.get_docstring(ast.parse(script.read_text())), "say what it shows"


def test_converted_example_runs(tmp_path: Path) -> None:
    run(tmp_path, str(ROOT / "examples/digits.py"))
    assert len(list(tmp_path.glob("sparktrain-runs/*/model.keras"))) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_pipeline_example_runs(
    tmp_path: Path, fashion_mnist: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--limit", "1200", "--epochs", "2", "--output", "out"]
    options += ["--images", fashion_mnist] if fashion_mnist is not None else []
    if fashion_mnist is None:
        with capsys.disabled():  # what passes is not shown otherwise
            print("\ntrains on handwritten digits: no package dataset-fashion-mnist to be had")
    shown = run(tmp_path, str(ROOT / "examples/pipeline.py"), *options)
    found = re.search(r"test accuracy (0\.\d+)", shown)
    assert found is not None and float(found[1]) > 0.4
    for name in ("history.png", "confusion.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")


def test_conversion_takes_fewer_than_ten_lines() -> None:
    single, converted = (
        (ROOT / "examples" / name).read_text().splitlines()[1:]
        for name in ("digits_single.py", "digits.py")
    )
    diff = list(difflib.unified_diff(single, converted, lineterm="", n=0))[2:]
    added = [line[1:] for line in diff if line.startswith("+") and line[1:].strip()]
    assert len(added) < 10
    # The README shows this very diff.
    shown = re.search(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    lines = shown[1].splitlines()
    assert [line[1:] for line in lines if line.startswith("+")] == added


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_no_glued_words_in_messages() -> None:
    """Texts broken over lines start the next piece with the space."""
    glued = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            is_message = isinstance(text, str) and "\n" not in text and "tf." not in text
            if is_message and re.search(r"[a-z]{2}[.,;][A-Z][a-z]+ ", text):
                glued.append(f"{path.name}: {text[:60]}")
    assert not glued
