"""Programs written for tensorspark, on sparktrain: the same modules, names and signatures.

import tensorspark.core.spark_session as sps
"""

from __future__ import annotations

__version__ = "1.0.6+sparktrain"
