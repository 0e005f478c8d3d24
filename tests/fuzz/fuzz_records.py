"""Fuzzes what reads TFRecord files, guided by coverage; tf.train.SequenceExample is the judge.

    python tests/fuzz/fuzz_records.py [-max_total_time=600]         (make fuzz)

Takes any bytes twice: as a whole file, and as the records of one. Nothing but damage and bad
records may come of them: no other exception, no hang, no allocation out of proportion, and no
other values than protobuf reads.
"""

from __future__ import annotations

import io
import sys
import tracemalloc
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["sparktrain"]):
    import pyarrow as pa

    from sparktrain.data.example_columns import Problems, make_column
    from sparktrain.data.example_infer import Inference
    from sparktrain.data.example_scan import Scanner
    from sparktrain.data.record_blocks import Damage, read_blocks
    from sparktrain.data.record_parts import Part, read_part
    from sparktrain.data.records import pack_record

import tensorflow as tf

sys.path.append(str(Path(__file__).parents[1] / "unit"))
from record_cases import make_block
from test_odd_records import Counted, compare

#: Names of features in what it begins with.
SEEDED = ("label", "x", "name", "none", "steps")
#: Beside what numpy and Arrow keep for a block.
ROOM = 64 << 20


def read_file(data: bytes) -> None:
    """As a file: strictly, leniently, and cut in two."""
    damages: list[Damage] = []
    kept = [block.row(row) for block, _ in read_blocks(io.BytesIO(data), on_damage=damages.append)
            for row in range(len(block))]  # fmt: skip
    try:
        strict = [
            block.row(row)
            for block, _ in read_blocks(io.BytesIO(data))
            for row in range(len(block))
        ]
    except Damage as damage:
        assert damages and 0 <= damage.offset <= len(data)
    else:
        assert strict == kept and not damages
        assert b"".join(map(pack_record, strict)) == data
    middle = len(data) // 2
    for part in (Part("u", "p", 0, middle), Part("u", "p", middle, None)):
        for _ in read_part(io.BytesIO(data), part, on_damage=lambda damage: None):
            pass


def read_records(records: list[bytes]) -> None:
    """As records of one block, against protobuf one by one."""
    block = make_block(records)
    Inference().add(block)
    found = Scanner().scan(block)
    names = sorted({*found.features, *found.lists, *SEEDED})
    # All features, and only some: others are then passed over.
    for wanted in (names, names[::2]):
        scanner = Scanner(wanted)
        scanner.scan(block)
        compare(records, scanner.scan(block), wanted, Counted())
        for name in wanted:
            for kind in (pa.list_(pa.float64()), pa.string()):
                make_column(block, name, scanner.scan(block), kind, Problems()).validate(full=True)


def test_one(data: bytes) -> None:
    read_file(data)
    half = len(data) // 2
    # With its like beside it a record is read in step, alone with patience.
    read_records([data[:half], data[half:], data[:half], data])


def make_seeds(folder: str) -> None:
    """Files and records that are sound: where to begin."""
    example = tf.train.SequenceExample()
    example.context.feature["label"].int64_list.value.extend([1, -1, 300, 2**40])
    example.context.feature["x"].float_list.value.extend([0.5, -1])
    example.context.feature["name"].bytes_list.value.extend([b"caf\xc3\xa9", b""])
    example.context.feature["none"].SetInParent()
    steps = example.feature_lists.feature_list["steps"]
    steps.feature.add().int64_list.value.extend([1, 2])
    steps.feature.add().bytes_list.value.append(b"z" * 130)
    steps.feature.add()
    record = example.SerializeToString()
    for number, seed in enumerate((record, record + record, pack_record(record) * 3, b"")):
        Path(folder, f"seed-{number}").write_bytes(seed)


def main() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        make_seeds(folder)
        tracemalloc.start()

        def run(data: bytes) -> None:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            test_one(data)
            assert tracemalloc.get_traced_memory()[1] - before < ROOM + 100 * len(data)

        words = sys.argv if len(sys.argv) > 1 else [*sys.argv, "-max_total_time=600"]
        atheris.Setup([*words, "-timeout=20", folder], run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
