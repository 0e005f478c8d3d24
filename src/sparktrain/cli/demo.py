"""`sparktrain demo`: the main job, end to end, on this machine."""

from __future__ import annotations

import sys

from rich.console import Console

import sparktrain
from sparktrain.cli.digits import SHAPES, make_frames, train
from sparktrain.spec import NodeResult

#: What the demo must reach on the images it has not seen.
WANTED_ACCURACY = 0.95


def run_demo(num_workers: int, epochs: int, run_dir: str | None) -> int:
    """Trains, evaluates, saves, and says where everything is; returns the exit code."""
    console = Console(highlight=False, soft_wrap=True)
    console.print("[bold]1/3[/] Starting an embedded Spark cluster: one executor per worker …")
    spark = sparktrain.session(num_executors=max(2, num_workers))
    console.print(
        f"[bold]2/3[/] Training a convolutional network on a DataFrame of 1,437 handwritten digits"
        f" with {num_workers} workers …"
    )
    digits, unseen = make_frames(spark, num_workers)
    result = sparktrain.run(
        train,
        num_workers=num_workers,
        data={
            "train": sparktrain.table(digits, shapes=SHAPES),
            "validation": sparktrain.table(unseen, shapes=SHAPES),
        },
        args={"epochs": epochs},
        run_dir=run_dir,
    )
    accuracy = result.value["accuracy"]
    console.print("[bold]3/3[/] Done.")
    console.print(f"  accuracy on 360 unseen digits  [bold green]{accuracy:.4f}[/]")
    console.print(f"  epochs                         {len(result.metrics)}")
    console.print(f"  nodes                          {_list_nodes(result.nodes)}")
    console.print(f"  model                          {result.model_path}")
    console.print(f"  logs, metrics, events          {result.run_dir}")
    console.print(f"  see the curves                 {result.tensorboard_command}")
    if accuracy < WANTED_ACCURACY:
        print(f"accuracy {accuracy:.4f} is below {WANTED_ACCURACY}", file=sys.stderr)
        return 1
    return 0


def _list_nodes(nodes: tuple[NodeResult, ...]) -> str:
    return ", ".join(
        f"{node.name} ({node.rows:,} rows)" if node.rows else node.name for node in nodes
    )
