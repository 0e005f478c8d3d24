"""Which versions of Keras have been tried on several workers. Imports no Keras itself."""

from __future__ import annotations

from packaging.version import Version

#: First and last Keras 3 for which `make test-slow` passed.
TESTED_FIRST, TESTED_LAST = "3.10.0", "3.15.1"


def check_version(found: str) -> str | None:
    """A warning for a Keras outside the tested range; None inside it."""
    first, last = Version(TESTED_FIRST), Version(TESTED_LAST)
    if first.release[:2] <= Version(found).release[:2] <= last.release[:2]:
        return None
    return (
        f"Keras {found} has not been tried with sparktrain on several workers; the tested"
        f" range is {TESTED_FIRST} to {TESTED_LAST}. Training may fail or differ from one"
        " process."
    )
