"""The sentence about the input at the end of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparktrain.driver.advice import MUCH, describe_input
from sparktrain.spec import FeedResult, NodeResult

READY = FeedResult(
    rows=50_000,
    bytes=100_000_000,
    train_s=10.0,
    wait_s=0.5,
    first_s=5.0,
    first_wait_s=0.4,
    queue=0,
)
#: Waits in the first epoch only, while Spark delivers.
DELIVERED = replace(READY, wait_s=4.1, first_wait_s=4.0)
#: Waits in every epoch.
SLOW = replace(READY, wait_s=8.0, first_wait_s=4.0)


def make_nodes(*feeds: FeedResult | None) -> list[NodeResult]:
    return [NodeResult("worker", i, "h", 11.0, 0, feed=feed) for i, feed in enumerate(feeds)]


@pytest.mark.parametrize("feeds", [(), (None,), (None, replace(READY, train_s=0.0))])
def test_nothing_is_said_where_nothing_was_fed_or_trained(feeds: tuple[FeedResult]) -> None:
    assert describe_input(make_nodes(*feeds)) is None


def test_little_waiting_is_the_models_limit() -> None:
    assert describe_input(make_nodes(READY, None)) == (
        "Steps waited 5% of the training time for input: the model is the limit, not the data."
    )
    edge = replace(READY, wait_s=MUCH * READY.train_s)
    assert "20% of the training time" in str(describe_input(make_nodes(edge)))
    assert "the model is the limit" in str(describe_input(make_nodes(edge)))


@pytest.mark.parametrize(
    "feed",
    [
        DELIVERED,
        replace(DELIVERED, train_s=5.0, wait_s=4.0),  # one epoch only
        replace(DELIVERED, wait_s=5.0, first_wait_s=4.0),
    ],
)
def test_waiting_in_the_first_epoch_is_sparks_delivery(feed: FeedResult) -> None:
    text = str(describe_input(make_nodes(READY, feed)))
    assert f"{feed.wait_share:.0%} of the training time for input on worker:1" in text
    assert "80% in the first epoch" in text and "while Spark delivers" in text
    assert "Cache the DataFrame" in text


def test_waiting_in_all_epochs_names_speed_and_what_to_change() -> None:
    text = str(describe_input(make_nodes(READY, SLOW, DELIVERED)))
    assert "80% of the training time for input on worker:1 (5,000 rows/s, 10 MB/s)" in text
    assert "input-bound" in text and "spark.sparktrain.spillDir" in text


def test_the_node_that_waits_most_is_the_one_described() -> None:
    one, other = replace(SLOW, wait_s=7.9), replace(SLOW, wait_s=9.0)
    assert "on worker:2" in str(describe_input(make_nodes(one, None, other)))
    assert "on worker:0" in str(describe_input(make_nodes(other, one)))


def test_no_first_epoch_is_no_division_by_zero() -> None:
    feed = replace(SLOW, first_s=0.0, first_wait_s=0.0)
    assert "the run is input-bound." in str(describe_input(make_nodes(feed)))
    assert replace(READY, train_s=0.0).wait_share == 0.0
    assert replace(READY, train_s=0.0).rows_per_s == replace(READY, train_s=0.0).mb_per_s == 0.0
