"""Code of modules that lie beside the user's script is pickled whole; packages are named."""

from __future__ import annotations

import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import sparktrain
from sparktrain.driver.function import dump
from sparktrain.scoring.by_value import find_own_modules, pickling_by_value
from sparktrain.scoring.own_classes import open_classes, pack_own

MODULES = {
    "own_shapes.py": """
import numpy as np
import own_sizes
from own_kinds.base import Base

class Shape(Base):
    def area(self):
        return int(np.prod([own_sizes.FACTOR, super().area()]))
""",
    "own_sizes.py": "FACTOR = 7",
    "own_kinds/__init__.py": "",
    "own_kinds/base.py": """
class Base:
    def area(self):
        return 3
""",
    "own_counts.py": """
SEEN = []

def see():
    SEEN.append(1)

class Count:
    def area(self):
        return len(SEEN)
""",
    "own_locked.py": """
import threading
LOCK = threading.Lock()

class Locked:
    def area(self):
        with LOCK:
            return 1
""",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [one for one in sys.modules if one.startswith("own_")]:
        del sys.modules[name]


def open_elsewhere(body: bytes, folder: Path) -> str:
    """What the class says in a process that has none of the modules."""
    (folder / "body").write_bytes(body)
    program = "import cloudpickle, pathlib, sys\n"
    program += "print(cloudpickle.loads(pathlib.Path(sys.argv[1]).read_bytes())().area())"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder / "body")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout.strip()


def test_own_modules_travel_whole_with_what_they_use(folder: Path) -> None:
    from own_shapes import Shape  # type: ignore[import-not-found]

    assert "No module named 'own_shapes'" in open_elsewhere(cloudpickle.dumps(Shape), folder)
    before = cloudpickle.list_registry_pickle_by_value()
    with pickling_by_value():
        body = cloudpickle.dumps(Shape)
    assert open_elsewhere(body, folder) == "21"
    assert cloudpickle.list_registry_pickle_by_value() == before


def test_what_is_installed_goes_by_its_name(folder: Path) -> None:
    import own_sizes  # type: ignore[import-not-found]

    pytest.importorskip("six")  # says that it is a package, and is none
    own = {module.__name__ for module in find_own_modules()}
    assert "own_sizes" in own
    named = {"numpy", "numpy.linalg", "cloudpickle", "json", "os", "threading", "__main__", "six"}
    assert not own & {*named, "sparktrain", "sparktrain.errors"}
    with pickling_by_value():
        assert len(cloudpickle.dumps(np.linalg.norm)) < 100
        assert len(cloudpickle.dumps(sparktrain.ConfigError)) < 100
    # As pip install --target does it.
    other = folder / "installed"
    (other / "own_packed-1.0.dist-info").mkdir(parents=True)
    (other / "own_packed.py").write_text("x = 1")
    sys.path.insert(0, str(other))
    try:
        import own_packed  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(other))
    found = {module.__name__ for module in find_own_modules()}
    assert own_packed.__name__ not in found and own_sizes.__name__ in found


def test_what_modules_keep_is_shared_where_it_is_opened(folder: Path) -> None:
    import own_counts  # type: ignore[import-not-found]
    import own_sizes

    own = {"see": own_counts.see, "Count": own_counts.Count, "needs": lambda: own_sizes.FACTOR}
    (folder / "all").write_bytes(pack_own(own).body)
    program = "import pathlib, sys\nfrom sparktrain.scoring.own_classes import open_classes\n"
    program += "found = open_classes(pathlib.Path(sys.argv[1]).read_bytes())\nfound['see']()\n"
    program += "print(sorted(found), found['Count']().area())"
    command = [sys.executable, "-c", program, str(folder / "all")]
    assert subprocess.check_output(command, text=True) == "['Count', 'needs', 'see'] 1\n"


def test_what_is_missing_hinders_those_that_need_it_only(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = types.ModuleType("gone_from_here")
    monkeypatch.setitem(sys.modules, "gone_from_here", gone)

    def needs() -> Any:
        return gone

    packed = pack_own({"needs": needs, "has": lambda: 3})
    assert set(open_classes(packed.body)) == {"needs", "has"}
    monkeypatch.delitem(sys.modules, "gone_from_here")
    assert set(open_classes(packed.body)) == {"has"}


def test_what_cannot_be_taken_whole_is_named(folder: Path) -> None:
    from own_locked import Locked  # type: ignore[import-not-found]

    lock = threading.Lock()

    def hold() -> None:
        with lock:
            pass

    packed = pack_own({"Locked": Locked, "hold": hold})
    assert set(packed.by_name) == {"Locked"} and "lock" in str(packed.by_name["Locked"])
    assert set(packed.failed) == {"hold"} and packed.body


def test_who_pickles_at_the_same_time_is_not_disturbed(folder: Path) -> None:
    from own_shapes import Shape

    begun, bodies = threading.Event(), []

    def pickle_too() -> None:
        begun.set()
        bodies.append(dump(Shape))

    other = threading.Thread(target=pickle_too)
    with pickling_by_value():
        other.start()
        begun.wait()
        other.join(0.2)
        assert not bodies and len(dump(Shape)) > 300  # its own thread takes it whole
    other.join()
    assert bodies == [cloudpickle.dumps(Shape)] and len(bodies[0]) < 100


def test_what_others_registered_stays(folder: Path) -> None:
    import own_sizes

    before = cloudpickle.list_registry_pickle_by_value()
    cloudpickle.register_pickle_by_value(own_sizes)
    errors: list[Any] = []

    def work() -> None:
        try:
            for _ in range(20):
                with pickling_by_value():
                    cloudpickle.dumps(own_sizes)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert cloudpickle.list_registry_pickle_by_value() == {*before, "own_sizes"}
    finally:
        cloudpickle.unregister_pickle_by_value(own_sizes)
