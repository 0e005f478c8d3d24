"""Periodic synchronisation: how fast one is, and what it costs in accuracy.

    python bench/parameter_server.py [speed] [fashion] [--rounds N]

speed      bytes/s of synchronising a Keras model of 100 MB with one parameter server, against the
           same bytes brought to a plain Flight server and fetched from it
fashion    a convolutional network on Fashion-MNIST: two workers that train together, and two that
           train alone and meet, at equal epochs and equal batches
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.flight as fl

from sparktrain.agent.doors import make_door
from sparktrain.data.memory import keeping_memory
from sparktrain.spec import NodeSpec
from sparktrain.wire.flight import Door
from sparktrain.wire.layout import PART_BYTES
from sparktrain.wire.parameters import SCHEMA, Stores, to_batch

RULES = ("average", "delta", "elastic")
#: Synchronisations that are measured, after some that are not.
COUNT, WARM = 15, 3
#: Steps between two meetings.
INTERVAL = 50


def make_parts(count: int) -> list[Any]:
    """Each with memory of its own, as weights have it: one part over and over stays in a cache."""
    return [to_batch(np.full(PART_BYTES // 4, n, np.float32)) for n in range(count)]


class Plain(fl.FlightServerBase):  # type: ignore[misc]
    """Takes bytes and drops them; gives out bytes that are ready."""

    def __init__(self, location: str, num_parts: int) -> None:
        super().__init__(location)
        self._batches = make_parts(num_parts)

    def do_put(self, _context: Any, _descriptor: Any, reader: Any, _writer: Any) -> None:
        for _ in reader:
            pass

    def do_get(self, _context: Any, _ticket: Any) -> fl.FlightDataStream:
        return fl.GeneratorStream(SCHEMA, iter(self._batches))

    def do_exchange(self, _context: Any, _descriptor: Any, reader: Any, writer: Any) -> None:
        writer.begin(SCHEMA)
        for batch in self._batches:  # as many as come: nobody says that writing is done
            reader.read_chunk()
            writer.write_batch(batch)


def serve(folder: Path, num_parts: int) -> None:
    """The other process: a parameter server, and a plain one."""
    from sparktrain.trainer.store import Store
    from sparktrain.trainer.store_door import OpenStore

    door, secret = make_door(NodeSpec("ps", 0), "127.0.0.1", folder, "secret")
    plain = Plain(f"grpc+unix://{folder}/plain", num_parts)
    with keeping_memory(), OpenStore(secret, Store()) as opened:  # as a parameter server does
        found = Door(**{**door.to_dict(), "port": opened.port})
        print(found.certificate.encode().hex(), opened.port, flush=True)
        sys.stdin.read()
    plain.shutdown()


def make_large_model() -> Any:
    """100 MB of float32 in six layers."""
    import keras

    size = 2048
    layers = [keras.layers.Dense(size, use_bias=True) for _ in range(6)]
    return keras.Sequential([keras.Input((size,)), *layers])


def measure(*works: Callable[[], None]) -> list[float]:
    """Seconds of each, which take turns: the median of several."""
    found: list[list[float]] = [[] for _ in works]
    for number in range(WARM + COUNT):
        for work, own in zip(works, found, strict=True):
            started = time.perf_counter()
            work()
            if number >= WARM:
                own.append(time.perf_counter() - started)
    return [statistics.median(own) for own in found]


def make_update(model: Any) -> Callable[[], None]:
    """What a step of training does with all weights, as little as it can be."""
    import tensorflow as tf

    variables = [variable.value for variable in model.trainable_variables]

    def update() -> None:
        for variable in variables:
            variable.assign_sub(variable * 1e-9)  # what is zero would be left out

    made: Callable[[], None] = tf.function(update)
    return made


def bring_and_fetch(client: Any, batches: list[Any]) -> None:
    writer, _ = client.do_put(fl.FlightDescriptor.for_command(b"x"), SCHEMA)
    for batch in batches:
        writer.write_batch(batch)
    writer.close()
    for _ in client.do_get(fl.Ticket(b"x")):
        pass


def exchange(client: Any, batches: list[Any]) -> None:
    """Both ways at once, as a synchronisation does it."""
    from threading import Thread

    writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(b"x"))

    def write() -> None:
        writer.begin(SCHEMA)
        for batch in batches:
            writer.write_batch(batch)

    thread = Thread(target=write)
    thread.start()
    for _ in reader:
        pass
    thread.join()
    writer.close()


def compare_speed(rounds: int) -> None:
    from sparktrain.trainer.periodic import Synchroniser

    model = make_large_model()
    nbytes = sum(weight.nbytes for weight in model.get_weights())
    batches = make_parts(nbytes // PART_BYTES)
    found: dict[str, list[float]] = {}
    update = make_update(model)
    updates: list[tuple[float, float]] = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder, Serving(folder, len(batches)) as stores:
            plain = fl.FlightClient(f"grpc+unix://{folder}/plain")
            note = found.setdefault
            for name, way in (("put, then get", bring_and_fetch), ("exchange", exchange)):
                note(name, []).extend(measure(partial(way, plain, batches)))
            for number, rule in enumerate(RULES):
                context: Any = SimpleNamespace(stores=stores, rank=0, num_workers=2)
                meeting = Synchroniser(context, f"model-{number}", model, rule, 0.5)
                meeting.join()
                synced, after, later = measure(meeting.sync, update, update)
                note(rule, []).append(synced)
                updates.append((after, later))
                meeting.close()
            plain.close()
    seconds = {name: statistics.median(values) for name, values in found.items()}
    print(
        f"\n| {nbytes / 1e6:.0f} MB there and back | ms | GB/s | of put, then get | of exchange |"
        "\n|---|---|---|---|---|"
    )
    for name, value in seconds.items():
        is_rule = name in RULES
        label = f"synchronisation, {name}" if is_rule else f"plain Flight: {name}"
        row = f"| {label} | {value * 1e3:.0f} | {2 * nbytes / value / 1e9:.2f} |"
        ratios = (seconds[way] / value for way in ("put, then get", "exchange"))
        print(row + ("".join(f" {ratio:.2f} |" for ratio in ratios) if is_rule else " | |"))
    after, later = (statistics.median(one[n] for one in updates) * 1e3 for n in (0, 1))
    print(f"\nThe next update of all weights takes {after:.0f} ms, later ones {later:.0f} ms.")
    print(flush=True)


class Serving:
    """The other process, as a context manager; gives where it is."""

    def __init__(self, folder: str, num_parts: int) -> None:
        self._folder = folder
        command = [sys.executable, __file__, "serve", folder, str(num_parts)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Stores:
        line = self._process.stdout.readline() if self._process.stdout else ""
        certificate, port = line.split()
        text = bytes.fromhex(certificate).decode()
        return Stores(
            (Door("ps:0", "127.0.0.1", int(port), f"{self._folder}/rows", text),), "secret"
        )

    def __exit__(self, *exc: object) -> None:
        self._process.communicate("", 20)


def train(ctx: Any) -> Any:
    import feed_fashion as own

    rule = ctx.args
    columns: dict[str, Any] = {"features": "image", "label": "label"}
    # Together, a batch is of all workers; alone, of one.
    size = own.BATCH // ctx.num_workers if rule else own.BATCH
    dataset = ctx.dataset(batch_size=size, shuffle=10_000, seed=1, **columns)

    def make_callbacks(model: Any) -> Iterator[Any]:
        if rule:
            yield ctx.parameter_server(model, sync_interval=INTERVAL, rule=rule)

    model, seconds = own.fit(ctx.strategy, dataset, make_callbacks)
    test = own.load("t10k")
    images, labels = test[0].reshape(-1, 28, 28, 1), test[1]
    return seconds, _score(model, images, labels)


def _score(model: Any, images: Any, labels: Any) -> float:
    """Accuracy on the test images, without the strategy: every worker has all of them."""
    hits = 0
    for start in range(0, len(images), 500):
        answers = np.asarray(model(images[start : start + 500], training=False))
        hits += int((answers.argmax(axis=1) == labels[start : start + 500]).sum())
    return hits / len(images)


def compare_accuracy(rounds: int) -> None:
    import feed_fashion

    import sparktrain as st

    spark = st.session(num_executors=3)
    frames = feed_fashion.make_frames(spark)
    if not frames:
        return
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(rounds):
        for rule in ("", *RULES):
            num_ps = 1 if rule else 0
            result = st.run(
                train,
                num_workers=2,
                num_ps=num_ps,
                args=rule,
                data=frames["train"],
                spark=spark,
                progress=False,
            )
            seconds, accuracy = result.value
            found.setdefault(rule, []).append((statistics.median(seconds), accuracy))
    print(
        f"\n| Fashion-MNIST, 2 workers, {feed_fashion.EPOCHS} epochs | seconds an epoch"
        " | test accuracy |\n|---|---|---|"
    )
    for rule, values in found.items():
        label = f"alone, {rule} every {INTERVAL} steps" if rule else "together"
        seconds, accuracy = (statistics.median(one[n] for one in values) for n in (0, 1))
        print(f"| {label} | {seconds:.1f} | {accuracy:.4f} |")
    print(flush=True)
    spark.stop()


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", choices=["speed", "fashion", []], default=[])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    parts = options.parts or ["speed", "fashion"]
    print(f"load of this machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if "speed" in parts:
        compare_speed(options.rounds)
    if "fashion" in parts:
        compare_accuracy(options.rounds)


if __name__ == "__main__":
    main()
