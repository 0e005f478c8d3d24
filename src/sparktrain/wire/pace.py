"""Where workers are that take their steps together, and which of them must catch up."""

from __future__ import annotations

from collections.abc import Mapping

#: Steps of one iteration of a dataset; the number of the iteration stands above them.
STEP_BITS = 32


def find_catch_up(paces: Mapping[str, tuple[int, bool]]) -> dict[str, int]:
    """Which workers must catch up, and to what: those that wait where others are ahead."""
    found = {}
    for node, (position, is_waiting) in paces.items():
        peers = [p for p, _ in paces.values() if p >> STEP_BITS == position >> STEP_BITS]
        if is_waiting and max(peers) > position:
            found[node] = max(peers)
    return found
