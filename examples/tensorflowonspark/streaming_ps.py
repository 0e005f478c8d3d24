"""Streaming with a parameter server: a TensorFlow 1 program fed by a DStream until it has enough.

Written for TensorFlowOnSpark.
"""

import argparse
import time

from pyspark import SparkConf, SparkContext
from pyspark.streaming import StreamingContext

from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import numpy as np
    import tensorflow.compat.v1 as tf

    from tensorflowonspark import TFNode

    tf.disable_eager_execution()
    cluster, server = TFNode.start_cluster_server(ctx, num_gpus=0)
    if ctx.job_name == "ps":
        server.join()
    device = f"/job:worker/task:{ctx.task_index}"
    with tf.device(tf.train.replica_device_setter(worker_device=device, cluster=cluster)):
        x = tf.placeholder(tf.float32, (None, 2))
        y = tf.placeholder(tf.float32, (None,))
        weights = tf.get_variable("weights", (2, 1), initializer=tf.zeros_initializer())
        loss = tf.reduce_mean((tf.squeeze(tf.matmul(x, weights), 1) - y) ** 2)
        step = tf.train.get_or_create_global_step()
        train = tf.train.GradientDescentOptimizer(0.3).minimize(loss, global_step=step)
    feed = TFNode.DataFeed(ctx.mgr)
    hooks = [tf.train.StopAtStepHook(last_step=args.steps)]
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=ctx.task_index == 0, hooks=hooks
    ) as session:
        while not session.should_stop() and not feed.should_stop():
            batch = feed.next_batch(args.batch_size)
            if batch:
                rows = np.array(batch, np.float32)
                value, _ = session.run([loss, train], {x: rows[:, :2], y: rows[:, 2]})
                print("loss", value, flush=True)
    feed.terminate()


def make_rows(number):
    """Rows of y = 2a - b."""
    import random

    dice = random.Random(number)
    pairs = [(dice.random(), dice.random()) for _ in range(200)]
    return [(a, b, 2 * a - b) for a, b in pairs]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=50)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()

    sc = SparkContext(conf=SparkConf().setAppName("streaming_ps"))
    ssc = StreamingContext(sc, 1)
    stream = ssc.queueStream([sc.parallelize(make_rows(number), 2) for number in range(200)])
    cluster = TFCluster.run(
        sc, main_fun, args, num_executors=2, num_ps=1, input_mode=TFCluster.InputMode.SPARK
    )
    started = time.time()
    cluster.train(stream)
    ssc.start()
    cluster.shutdown(ssc)
    print("stopped after", round(time.time() - started), "s", flush=True)
    sc.stop()
