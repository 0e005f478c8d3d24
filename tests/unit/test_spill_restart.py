"""What a restart may use of earlier spills: which are whole, who takes which, what is removed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from sparktrain.data.spill import Entry, SpillWriter
from sparktrain.data.spill_folders import (
    MANIFEST,
    find_complete,
    find_roots,
    make_folder,
    match,
    read_manifest,
    remove_folders,
    write_manifest,
)


def write(folder: Path) -> list[Entry]:
    """Three blocks of table "t"."""
    block = pa.RecordBatch.from_pydict({"n": list(range(50))})
    writer = SpillWriter(folder / "t.arrow", block.schema)
    entries = [writer.append(block) for _ in range(3)]
    writer.close()
    return entries


def check_match(options: Sequence[Collection[int]]) -> None:
    """Compares with all that can be."""
    size = len(options)
    orders = itertools.permutations(range(size))
    can_be = any(all(p in o for p, o in zip(order, options, strict=True)) for order in orders)
    found = match(options)
    assert (found is not None) == can_be, options
    if found is not None:
        assert sorted(found) == list(range(size))
        assert all(one in option for one, option in zip(found, options, strict=True))


def test_the_root_is_the_users_choice_or_one_of_sparks_local_folders() -> None:
    name = "sparktrain-spill-r1"
    assert find_roots("/a,/b", "/own", "r1") == [Path("/own", name)]
    assert find_roots("/a,,/b", "", "r1") == [Path("/a", name), Path("/b", name)]
    assert find_roots("", "", "r1") == [Path("/tmp", name)]


def test_removing_leaves_what_other_tasks_of_this_attempt_have(tmp_path: Path) -> None:
    root = tmp_path / "root"
    old, other_old, mine, other = [
        make_folder(root, part, attempt) for attempt in (9, 10) for part in (0, 1)
    ]
    (mine / "t.arrow").write_text("x")
    remove_folders(root, 10)
    assert not old.exists() and not other_old.exists() and mine.exists() and other.exists()
    remove_folders(root, 10, mine)
    assert not mine.exists() and other.exists()
    remove_folders(root, 10, other)
    assert not root.exists()
    remove_folders(root, 10, other)  # nothing left: no error


def test_complete_spills_are_found_by_attempt_and_partition(tmp_path: Path) -> None:
    folders = {}
    for partition, attempt in ((0, 9), (0, 10), (3, 9)):
        folder = folders[attempt, partition] = make_folder(tmp_path, partition, attempt)
        entries = {"t": write(folder), "empty": []}
        write_manifest(folder, entries)
        assert read_manifest(folder) == entries
    assert find_complete(tmp_path, ["empty", "t"]) == folders
    assert find_complete(tmp_path, ["t"]) == {}  # the run has other tables now
    assert find_complete(tmp_path / "none", ["t"]) == {}


@pytest.mark.parametrize("harm", ["manifest", "cut", "gone", "json", "fields", "name"])
def test_spills_that_are_not_whole_are_not_found(tmp_path: Path, harm: str) -> None:
    folder = make_folder(tmp_path, 0, 0)
    entries = write(folder)
    write_manifest(folder, {"t": entries})
    assert find_complete(tmp_path, ["t"]) == {(0, 0): folder}
    if harm == "cut":
        with (folder / "t.arrow").open("r+b") as file:
            file.truncate(entries[-1].offset + entries[-1].size - 1)
    elif harm == "name":
        folder.rename(tmp_path / "part-x-y")
    elif harm in ("manifest", "gone"):
        (folder / (MANIFEST if harm == "manifest" else "t.arrow")).unlink()
    else:
        (folder / MANIFEST).write_text("{" if harm == "json" else '{"t": [{"offset": 1}]}')
    assert find_complete(tmp_path, ["t"]) == {}


def test_every_choice_of_up_to_three_nodes_is_matched_if_it_can_be() -> None:
    for size in (1, 2, 3):
        subsets = [
            chosen
            for count in range(size + 2)
            for chosen in itertools.combinations(range(size + 1), count)
        ]
        for options in itertools.product(subsets, repeat=size):
            check_match(options)


def test_choices_of_four_and_more_nodes_are_matched_if_they_can_be() -> None:
    rng = random.Random(3)
    for size in (4,) * 1500 + (6,) * 100:
        few = rng.randrange(1, size + 1)
        check_match([rng.sample(range(size + 2), rng.randrange(few + 1)) for _ in range(size)])


def test_nodes_keep_their_own_partitions() -> None:
    assert match([[0, 1, 2]] * 3) == [0, 1, 2]
    assert match([[1], [0]]) == [1, 0]
    assert match([]) == []
