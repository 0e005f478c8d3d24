"""Programs written for the hops library, on sparktrain and plain Spark: no Hopsworks is needed."""

from __future__ import annotations

__version__ = "4.0.0+sparktrain"
