"""Says in one sentence whether the input or the model was the limit, and what to change."""

from __future__ import annotations

from collections.abc import Sequence

from sparktrain.spec import NodeResult

#: Above this share of waiting a run is called input-bound.
MUCH = 0.2


def describe_input(nodes: Sequence[NodeResult], is_spark: bool = True) -> str | None:
    """The sentence for the end of a run; None if nothing was fed or no training was seen.

    Args:
        nodes: How the input of each was.
        is_spark: Whether Spark fed rows; else all came from files.
    """
    fed = [node for node in nodes if node.feed is not None and node.feed.train_s > 0]
    if not fed:
        return None
    slowest = max(fed, key=lambda node: node.feed.wait_share if node.feed else 0.0)
    feed = slowest.feed
    if feed is None:
        return None
    share = f"Steps waited {feed.wait_share:.0%} of the training time for input"
    if feed.wait_share <= MUCH:
        return f"{share}: the model is the limit, not the data."
    if not is_spark:
        return (
            f"{share} on {slowest.name} ({feed.rows_per_s:,.0f} rows/s, {feed.mb_per_s:,.0f} MB/s):"
            " the run is input-bound. Read fewer columns (columns=[...]), choose Parquet or"
            " TFRecord rather than CSV, or put the files on a faster store."
        )
    later_s, later_wait_s = feed.train_s - feed.first_s, feed.wait_s - feed.first_wait_s
    if feed.first_wait_s > later_wait_s or later_wait_s <= MUCH * later_s:
        first = feed.first_wait_s / feed.first_s if feed.first_s > 0 else 0.0
        return (
            f"{share} on {slowest.name}, {first:.0%} in the first epoch: the run is input-bound"
            " while Spark delivers. Cache the DataFrame before run(), give Spark more cores, or"
            " train more epochs on it."
        )
    return (
        f"{share} on {slowest.name} ({feed.rows_per_s:,.0f} rows/s, {feed.mb_per_s:,.0f} MB/s): the"
        " run is input-bound. Feed fewer or smaller columns (columns=[...], float32), use a"
        " smaller shuffle window, or put spark.sparktrain.spillDir on a faster disk."
    )
