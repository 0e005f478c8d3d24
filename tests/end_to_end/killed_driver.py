"""A driver with a cluster that is fed; tells its nodes' processes, and waits to be killed."""

from __future__ import annotations

import json
import sys
import time

import cluster_cases
import sparktrain as st

if __name__ == "__main__":
    spark = st.session()
    cluster = st.cluster(
        cluster_cases.note_ids,
        num_workers=2,
        spark=spark,
        args=0.001,
        run_dir=sys.argv[1],
        progress=False,
        distribution="none",
        driver_timeout_s=3,
    )
    print(json.dumps([node.pid for node in cluster.nodes]), flush=True)
    cluster.feed(spark.range(0, 10_000_000, 1, 4))
    time.sleep(600)
