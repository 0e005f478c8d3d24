"""`sparktrain doctor`: checks this machine and the executors, says ok or what to do."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from sparktrain import embedded
from sparktrain.agent.device_refusals import find_doubled
from sparktrain.agent.rendezvous import find_differences, find_versions
from sparktrain.cli.doctor_gpus import find_gpus, tell_gpus
from sparktrain.driver import spark_facts
from sparktrain.driver.gpu_plan import GpuPlan, plan_gpus
from sparktrain.driver.run_folder import make_run_id
from sparktrain.errors import SparktrainError
from sparktrain.settings import resolve
from sparktrain.spec import DeviceWish
from sparktrain.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MIN_PYTHON = (3, 11)
#: Two trainers with TensorFlow beside the embedded Spark.
TRAINERS_MB = 2 * 700


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    subject: str
    ok: bool
    text: str


def run_doctor(connect: Callable[[], SparkSession] | None, *, with_spark: bool) -> int:
    """Prints a line for each check; returns 1 if something needs doing."""
    console = Console(highlight=False, soft_wrap=True)
    num_bad = 0
    for finding in find_all(connect, with_spark):
        mark = Text("ok   ", style="green") if finding.ok else Text("DO   ", style="bold red")
        console.print(mark + Text(f"{finding.subject:<12} {finding.text}"))
        num_bad += not finding.ok
    return int(num_bad > 0)


def find_all(connect: Callable[[], SparkSession] | None, with_spark: bool) -> Iterator[Finding]:
    yield check_python(sys.version_info[:2])
    yield check_java()
    yield check_memory(embedded.find_available_memory_mb())
    yield from check_packages(find_versions(), _find_version("pyspark"))
    yield check_port()
    if with_spark:
        try:
            spark = connect() if connect is not None else embedded.session()
        except Exception as error:
            yield Finding("spark", False, _first_line(error))
            return
        yield from check_spark(spark)


def check_python(version: tuple[int, ...]) -> Finding:
    text = f"{platform.python_version()} at {sys.executable}"
    wanted = ".".join(map(str, MIN_PYTHON))
    return Finding(
        "python", version >= MIN_PYTHON, text if version >= MIN_PYTHON else f"install {wanted}+"
    )


def check_java() -> Finding:
    java = embedded.find_java(os.environ)
    try:
        return Finding("java", True, f"{embedded.check_java(java, embedded.MIN_JAVA)} at {java}")
    except SparktrainError as error:
        return Finding("java", False, str(error))


def check_memory(available_mb: int | None) -> Finding:
    if available_mb is None:
        return Finding("memory", True, "this system does not tell how much is available")
    needed = embedded.DRIVER_MEMORY_MB + 2 * 1024 + TRAINERS_MB
    text = f"{available_mb:,} MB available, {needed:,} MB wanted for the embedded Spark"
    if available_mb < needed:
        text += " and two trainers: close other programs, or use a cluster with --master"
    return Finding("memory", available_mb >= needed, text)


def check_packages(versions: dict[str, str], pyspark: str | None) -> Iterator[Finding]:
    """The pyspark, TensorFlow and Keras combination."""
    from packaging.version import Version

    if pyspark is None:
        yield Finding("pyspark", False, 'missing: pip install "sparktrain[spark]"')
    else:
        ok = Version(pyspark) >= Version("4.0")
        yield Finding("pyspark", ok, pyspark if ok else f"{pyspark}: install 4.0 or newer")
    found = versions["tensorflow"]
    if found == "none":
        yield Finding("tensorflow", False, 'missing: pip install "sparktrain[tensorflow-cpu]"')
    else:
        ok = Version(found) >= Version("2.18")
        yield Finding("tensorflow", ok, found if ok else f"{found}: install 2.18 or newer")
    yield check_keras(versions["keras"])
    if versions["tf-keras"] != "none" and found != "none":
        ok = Version(versions["tf-keras"]).release[:2] == Version(found).release[:2]
        text = versions["tf-keras"] + ("" if ok else f": install the one for TensorFlow {found}")
        yield Finding("tf-keras", ok, text)
    pandas = _find_version("pandas")
    if pandas is not None:
        ok = Version(pandas) < Version("3")
        yield Finding("pandas", ok, pandas if ok else f"{pandas}: pyspark wants pandas<3")


def check_keras(found: str) -> Finding:
    from sparktrain.trainer.keras_versions import check_version

    if found == "none":
        return Finding("keras", False, "missing: it comes with TensorFlow 2.16 and newer")
    warning = check_version(found)
    return Finding("keras", warning is None, warning or found)


def check_port() -> Finding:
    try:
        wished = resolve({}, lambda key: None, os.environ).control_port
    except SparktrainError as error:
        return Finding("settings", False, str(error))
    try:
        with socket.socket() as probe:
            probe.bind((spark_facts.LOOPBACK, wished))
            return Finding("port", True, f"can listen on {probe.getsockname()[1]}")
    except OSError as error:
        return Finding("port", False, f"cannot listen on {wished}: {error}; choose another port")


def check_spark(spark: SparkSession) -> Iterator[Finding]:
    """Asks the session and each executor."""
    master = spark_facts.get_conf(spark, "spark.master")
    yield Finding("spark", True, f"{spark.version} on {master}")
    slots = spark_facts.count_slots(spark)
    yield Finding("slots", slots != 0, "unknown" if slots is None else f"{slots} task slots")
    dynamic = spark_facts.get_conf(spark, "spark.dynamicAllocation.enabled") or "false"
    text = "off" if dynamic != "true" else "set spark.dynamicAllocation.enabled=false"
    yield Finding("allocation", dynamic != "true", f"dynamic allocation: {text}")
    plan = None
    if dynamic != "true":  # else tasks cannot run together
        try:
            settings = resolve({}, lambda key: spark_facts.get_conf(spark, key), os.environ)
            plan = plan_gpus(spark, settings)
            if plan.profile is not None:
                slots = spark_facts.count_slots(spark, plan.profile)
        except SparktrainError as error:
            yield Finding("gpus", False, str(error))
    try:
        rows = _ask_executors(spark, slots or 2, plan)
    except Exception as error:
        text = f"cannot run Python: {_first_line(error)}; set PYSPARK_PYTHON to one with sparktrain"
        yield Finding("executors", False, text)
        return
    known = [("driver", {"sparktrain": __version__, "python": find_versions()["python"]})]
    known += [(row["host"], dict(row["versions"])) for row in rows]
    differences = find_differences(known)
    for row in rows:
        versions = row["versions"]
        text = f"python {versions['python']} at {row['executable']}, tensorflow"
        text += f" {versions['tensorflow']}, keras {versions['keras']}"
        yield Finding("executor", versions["tensorflow"] != "none", f"{row['host']}: {text}")
        if "gpus" in row:
            yield Finding("gpus", "error" not in row["gpus"], f"{row['host']}: {tell_gpus(row)}")
    if doubled := find_doubled((row["host"], row.get("gpus", {}).get("ids", ())) for row in rows):
        yield Finding("gpus", False, f"of workers, {doubled}")
    same = "all run the same software"
    yield Finding("versions", not differences, str(differences) if differences else same)


def _ask_executors(
    spark: SparkSession, num_tasks: int, plan: GpuPlan | None
) -> list[dict[str, Any]]:
    # At the same time and with the same resources as the nodes of a run: devices are given out
    # as they would be.
    check = ExecutorCheck(plan.wish if plan is not None else None, f"doctor-{make_run_id()}")
    stage = spark.range(0, num_tasks, 1, num_tasks).mapInArrow(
        check,
        "card string",
        barrier=plan is not None,
        profile=plan.profile if plan is not None else None,
    )
    return [json.loads(row.card) for row in stage.collect()]


@dataclass(frozen=True)
class ExecutorCheck:
    """What runs in each slot: looks around, and claims a worker's GPUs for a moment.

    Attributes:
        wish: About GPUs; None where tasks cannot run together, and nothing is claimed.
        run_id: Of the run that all slots together stand for.
    """

    wish: DeviceWish | None
    run_id: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import BarrierTaskContext

        for _ in batches:
            pass
        card: dict[str, Any] = {
            "host": socket.gethostname(),
            "executable": sys.executable,
            "versions": find_versions(),
        }
        if self.wish is not None:
            found = find_gpus(self.wish, BarrierTaskContext.get(), self.run_id)
            card |= {"gpus": found} if found is not None else {}
        yield pa.RecordBatch.from_pydict({"card": [json.dumps(card)]})


def _find_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    # Spark's errors end with what happened on the executor.
    modules = [line.strip() for line in lines if "No module named" in line]
    return (modules or lines or [type(error).__name__])[0][:300]
