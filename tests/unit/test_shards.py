"""Listing files once, and splitting them so that every row is in exactly one shard."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparktrain as st
from sparktrain.data.shards import FileInfo, Shard, list_files, split


def touch(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a\n1\n")


def names_of(infos: tuple[FileInfo, ...]) -> list[str]:
    return [Path(info.path).name for info in infos]


def test_a_glob_a_folder_and_a_file(tmp_path: Path) -> None:
    touch(tmp_path, "part-1.csv", "part-0.csv", ".part.crc", "_SUCCESS", "_temporary/x.csv", "b/c")
    assert names_of(list_files(st.files(f"{tmp_path}/*.csv", format="csv"))) == [
        "part-0.csv",
        "part-1.csv",
    ]
    (info, _) = list_files(st.files(tmp_path, format="csv"))
    assert (info.path, info.size) == (str(tmp_path / "part-0.csv"), 4)
    assert names_of(list_files(st.files(f"file://{tmp_path}/b", format="csv"))) == ["c"]
    assert names_of(list_files(st.files(tmp_path / "_SUCCESS", format="csv"))) == ["_SUCCESS"]
    # A glob may match folders, and two patterns may match one file.
    both = st.files([f"{tmp_path}/*", f"{tmp_path}/part-0.csv"], format="csv")
    assert sorted(names_of(list_files(both))) == ["c", "part-0.csv", "part-1.csv"]


def test_a_name_with_the_signs_of_a_glob(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].csv")
    assert names_of(list_files(st.files(tmp_path / "a[1].csv", format="csv"))) == ["a[1].csv"]


@pytest.mark.parametrize("name", ["nosuch.csv", "*.csv", "sub"])
def test_nothing_found_names_the_pattern(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    with pytest.raises(st.ConfigError, match="found no file for .*" + name.replace("*", r"\*")):
        list_files(st.files(tmp_path / name, format="csv"))


def test_unknown_protocols_and_compressions_are_refused(tmp_path: Path) -> None:
    with pytest.raises(st.ConfigError, match=r"nosuch.*s3fs for s3"):
        list_files(st.files("nosuch://a/b", format="csv"))
    touch(tmp_path, "a.csv.bz2")
    with pytest.raises(st.ConfigError, match=r"not read \(.bz2\).*\.gz, \.zz"):
        list_files(st.files(tmp_path, format="csv"))


def test_other_stores_are_listed_through_fsspec() -> None:
    store = fsspec.filesystem("memory")
    for name in ("/listed/b.csv", "/listed/a.csv", "/listed/_x.csv"):
        store.pipe(name, b"a\n1\n")
    found = list_files(st.files("memory://listed/*.csv", format="csv"))
    assert found == (
        FileInfo("memory://listed/*.csv", "/listed/a.csv", 4),
        FileInfo("memory://listed/*.csv", "/listed/b.csv", 4),
    )
    store.rm("/listed", recursive=True)


def test_row_groups_are_looked_up_only_if_needed(tmp_path: Path) -> None:
    table = pa.table({"a": list(range(100))})
    for number in range(2):
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=30)
    found = st.files(tmp_path, format="parquet")
    assert [info.row_groups for info in list_files(found, 2)] == [None, None]
    assert [len(info.row_groups or ()) for info in list_files(found, 3)] == [4, 4]
    (tmp_path / "0.parquet").write_bytes(b"PAR1 no parquet")
    with pytest.raises(st.ConfigError, match=r"0\.parquet cannot be read"):
        list_files(found, 3)


@pytest.mark.parametrize("num_workers", range(1, 6))
@pytest.mark.parametrize("num_files", range(8))
@pytest.mark.parametrize("num_groups", [None, 0, 1, 3])
def test_everything_is_in_exactly_one_shard(
    num_workers: int, num_files: int, num_groups: int | None
) -> None:
    groups = None if num_groups is None else tuple(range(10, 10 + num_groups))
    infos = [FileInfo("u", str(number), number * 7 % 5, groups) for number in range(num_files)]
    shards = split(infos, num_workers)
    assert len(shards) == num_workers
    seen: Counter[tuple[str, int]] = Counter()
    # A unit is a row group, or one of 60 records of a file.
    for shard in (shard for own in shards for shard in own):
        if shard.row_groups is not None:
            seen.update((shard.path, group) for group in shard.row_groups)
        elif groups is not None and shard.num_parts == 1:
            seen.update((shard.path, group) for group in range(len(groups)))
        else:
            seen.update((shard.path, row) for row in range(shard.part, 60, shard.num_parts))
    units = 60 if groups is None else len(groups)
    assert seen == Counter((info.path, unit) for info in infos for unit in range(units))


def test_splits_are_even_by_bytes() -> None:
    sizes = [90, 10, 10, 10, 30, 30, 60, 60]
    infos = [FileInfo("u", str(at), size) for at, size in enumerate(sizes)]
    loads = [sum(shard.size for shard in own) for own in split(infos, 3)]
    assert max(loads) - min(loads) <= 10
    # Where a store tells no sizes, by count.
    unsized = [FileInfo("u", str(at), 0) for at in range(9)]
    assert [len(own) for own in split(unsized, 4)] == [3, 2, 2, 2]
    groups = [FileInfo("u", "a", 100, (10, 50, 40)), FileInfo("u", "b", 60, (30, 30))]
    loads = [sum(shard.size for shard in own) for own in split(groups, 3)]
    assert sorted(loads) == [50, 50, 60]


def test_shards_travel_as_json() -> None:
    for shard in (Shard("u", "p", 3, 1, 4), Shard("u", "p", 3, row_groups=(0, 2))):
        assert Shard.from_dict(json.loads(json.dumps(shard.to_dict()))) == shard
