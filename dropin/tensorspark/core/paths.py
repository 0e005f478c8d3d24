"""Where the files of a session are, as Spark's configuration says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sparktrain.driver.spark_facts import get_conf

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: Stores that have users.
_WITH_USER = ("hdfs://", "webhdfs://")


def find_base_dir(spark: Any, default: str) -> str:
    """spark.hdfs.dir, else a folder of the driver's, which all hosts must see."""
    wished = get_conf(spark, "spark.hdfs.dir")
    if not wished:
        return str(Path(default).absolute())
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    default_fs = str(hadoop.get("fs.defaultFS") or "")
    return join_base(wished, default_fs)


def join_base(wished: str, default_fs: str) -> str:
    """A path without a scheme is one of Hadoop's default file system."""
    if _SCHEME.match(wished):
        return wished.rstrip("/")
    if not default_fs or default_fs.startswith("file:"):
        return wished.rstrip("/")
    return f"{default_fs.rstrip('/')}/{wished.strip('/')}".rstrip("/")


def find_storage_options(path: str, user: str) -> dict[str, Any]:
    return {"user": user} if user and path.startswith(_WITH_USER) else {}
