"""The embedded Spark: a real cluster of two executors on this machine, with nothing to set up.

Spark's `local-cluster` master starts a master, workers and executors as separate processes. It
writes below SPARK_HOME, which pip installs into the Python environment: so it gets a SPARK_HOME
of its own in a temporary folder, made of links, that goes away with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparktrain.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA = 17
#: The Spark driver's own Java process, beside the executors'.
DRIVER_MEMORY_MB = 1024
_PREFIX = "sparktrain-spark-"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_QUIET_LOGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""

_home: Path | None = None
_creating = threading.Lock()


def session(
    *,
    num_executors: int = 2,
    executor_cores: int = 1,
    executor_memory_mb: int = 1024,
    conf: dict[str, str] | None = None,
) -> SparkSession:
    """The embedded Spark session; the one this process has already, as it is, if there is one.

    Args:
        num_executors: Executors, each a process. Defaults to 2.
        executor_cores: Task slots in each executor. Defaults to 1.
        executor_memory_mb: Memory of each executor's Java process; trainers are outside of it.
            Defaults to 1024.
        conf: More Spark configuration. Defaults to None.

    Raises:
        SessionError: No Java, one that is too old, or too little memory.
    """
    with _creating:
        found = find_session()
        if found is not None:
            return found
        return _create(num_executors, executor_cores, executor_memory_mb, conf or {})


def find_session() -> SparkSession | None:
    """The session of this process, also from a thread that has not used it yet."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, is_remote

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if is_remote():
        from pyspark.sql.connect.session import SparkSession as RemoteSession

        remote: Any = RemoteSession
        return getattr(remote, "_default_session", None)
    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    return None


def _create(
    num_executors: int, executor_cores: int, executor_memory_mb: int, conf: dict[str, str]
) -> SparkSession:
    check_java(find_java(os.environ), MIN_JAVA)
    check_memory(num_executors, executor_memory_mb, find_available_memory_mb())
    spark = _start(num_executors, executor_cores, executor_memory_mb, conf)
    _wait_for_executors(spark, num_executors * executor_cores)
    return spark


def find_java(environ: Any) -> str | None:
    """The java command Spark will use: JAVA_HOME's, else the one on the path."""
    home = environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        return str(candidate) if candidate.exists() else None
    return shutil.which("java", path=environ.get("PATH"))


def read_java_version(java: str) -> int | None:
    """The major version a java command reports; None if it does not."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java_version(answer.stderr + answer.stdout)


def parse_java_version(text: str) -> int | None:
    found = _VERSION.search(text)
    if found is None:
        return None
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # "1.8.0" is Java 8


def check_java(java: str | None, wanted: int) -> int:
    """The major version; refuses a Java that is missing or too old."""
    if java is None:
        raise SessionError(
            problem="No Java was found: neither JAVA_HOME nor the path leads to a java command.",
            advice=f"Spark 4 needs Java {wanted} or newer: install one (for example"
            " `apt-get install openjdk-17-jre-headless`) or set JAVA_HOME.",
        )
    version = read_java_version(java)
    if version is None or version < wanted:
        raise SessionError(
            problem=f"{java} is Java {version or 'of an unknown version'}.",
            advice=f"Spark 4 needs Java {wanted} or newer: install one and set JAVA_HOME to it.",
        )
    return version


def check_memory(num_executors: int, executor_memory_mb: int, available_mb: int | None) -> None:
    needed = DRIVER_MEMORY_MB + num_executors * executor_memory_mb
    if available_mb is not None and available_mb < needed:
        raise SessionError(
            problem=f"The embedded Spark needs {needed} MB of memory ({num_executors} executors of"
            f" {executor_memory_mb} MB and {DRIVER_MEMORY_MB} MB for its driver), but"
            f" {available_mb} MB are available.",
            advice="Close other programs, or ask for less: sparktrain.session(num_executors=...,"
            " executor_memory_mb=...).",
        )


def find_available_memory_mb() -> int | None:
    """What this machine or container can still give; None where Linux does not tell."""
    found = []
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text()
        found.append(int(text.split("MemAvailable:")[1].split()[0]) // 1024)
    with contextlib.suppress(OSError, ValueError, IndexError):
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        # Files that were read count as used until somebody needs the memory.
        used -= int((group / "memory.stat").read_text().split("inactive_file ")[1].split()[0])
        if limit != "max":
            found.append((int(limit) - used) // 1024**2)
    return min(found) if found else None


def _start(executors: int, cores: int, memory_mb: int, more: dict[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    home = _make_home()
    # Without it the executors take whatever "python3" means to them.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False)
    for key, value in {
        "spark.master": f"local-cluster[{executors},{cores},{memory_mb}]",
        "spark.app.name": "sparktrain",
        "spark.driver.memory": f"{DRIVER_MEMORY_MB}m",
        "spark.executor.memory": f"{memory_mb}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.sql.artifact.isolation.enabled": "false",
        # Rows of images travel to Python twice as fast as in Spark's batches of 64 MB.
        "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
        **more,
    }.items():
        conf.set(key, value)
    log = home / "driver.log"
    if SparkContext._gateway is None:
        with log.open("ab") as stream, _environment(_spark_variables(home)):
            try:
                # Spark's first lines cannot be silenced by configuration: they go to a file.
                launch: Any = launch_gateway  # pyspark gives it no types
                SparkContext._gateway = launch(conf, {"stderr": stream})
                SparkContext._jvm = SparkContext._gateway.jvm
            except Exception as error:
                tail = log.read_text(errors="replace")[-2000:].strip()
                raise SessionError(
                    problem=f"The embedded Spark did not start: {error}. It said: {tail}.",
                    advice="`sparktrain doctor` checks what it needs.",
                ) from error
    return SparkSession.builder.config(conf=conf).getOrCreate()


def _spark_variables(home: Path) -> dict[str, str]:
    return {
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _make_home() -> Path:
    """A SPARK_HOME of links to the installed one, with places to write of its own."""
    global _home
    if _home is not None:
        return _home
    from pyspark.find_spark_home import _find_spark_home

    _remove_abandoned(Path(tempfile.gettempdir()))
    home = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-{_host()}-"))
    for entry in Path(_find_spark_home()).iterdir():
        if entry.name not in ("work", "conf", "logs"):
            (home / entry.name).symlink_to(entry)
    for name in ("conf", "local", "work"):
        (home / name).mkdir()
    (home / "conf" / "log4j2.properties").write_text(_QUIET_LOGS)
    atexit.register(_stop, home)
    _home = home
    return home


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())


def _remove_abandoned(folder: Path) -> None:
    """Removes homes of processes that were killed before they could."""
    # Of this host: containers may share the folder, but not the process numbers.
    for home in folder.glob(f"{_PREFIX}*-{_host()}-*"):
        owner = home.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and Path("/proc/self").exists():
            shutil.rmtree(home, ignore_errors=True)


def _stop(home: Path) -> None:
    """At the end of this process: stops Spark and its Java, then removes the home."""
    from pyspark import SparkContext

    with contextlib.suppress(Exception):
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
    gateway: Any = SparkContext._gateway
    with contextlib.suppress(Exception):
        gateway.shutdown()
        process = gateway.proc
        process.stdin.close()  # Spark's Java ends with this pipe
        process.wait(10)
    # Executors end when their driver does, and write until then.
    for _ in range(20):
        shutil.rmtree(home, ignore_errors=True)
        if not home.exists():
            return
        time.sleep(0.2)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Any:
    """Sets environment variables for the processes started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _wait_for_executors(spark: SparkSession, slots: int) -> None:
    """Executors come up a few seconds after the session: the first run shall find them."""
    from sparktrain.driver.spark_facts import wait_for_slots

    found, waited = wait_for_slots(spark, slots, 60.0)
    if found is not None and found < slots:
        raise SessionError(
            problem=f"Only {found} of {slots} task slots of the embedded Spark came up within"
            f" {waited:.0f} s.",
            advice="`sparktrain doctor` checks what it needs; a busy machine may need less:"
            " sparktrain.session(num_executors=...).",
        )
