"""The Spark session that a program means when it names none, and its settings."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparktrain.settings import Settings


def find_active() -> Any:
    """The session of this process, whichever thread asks; None if there is none, and where
    pyspark was never loaded.
    """
    if "pyspark" not in sys.modules:
        return None
    from sparktrain.embedded import find_session as find_any

    return find_any()


def find_session(spark: Any = None) -> Any:
    """The given session, else that of the process, else the embedded one."""
    from sparktrain.training import find_session as find_embedded

    found = spark if spark is not None else find_active()
    return found if found is not None else find_embedded(2)


def find_settings(spark: Any) -> Settings:
    """sparktrain's settings of a session."""
    from sparktrain.driver.spark_facts import get_conf
    from sparktrain.settings import resolve

    return resolve({}, lambda key: get_conf(spark, key), os.environ)
