"""Shared by the tests of the drop-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

from hops import place


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of hops: an empty folder, with room for others beside it."""
    folder = tmp_path / "projects" / "demo"
    folder.mkdir(parents=True)
    monkeypatch.setenv(place.VARIABLE, str(folder))
    return folder
