"""Marks in the stream of rows; kept for programs that import them."""

from __future__ import annotations


class Marker:
    """Base of all marks."""


class EndPartition(Marker):
    """The end of a partition. Feeds know it without a mark between the rows."""
