"""Programs written for TensorFlowOnSpark, on sparktrain: the same modules, names and signatures."""

from __future__ import annotations

__version__ = "2.2.5+sparktrain"
