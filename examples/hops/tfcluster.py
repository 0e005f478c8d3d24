"""TensorFlowOnSpark, as it was run on Hops: the cluster's size is that of the session.

Written for hops and TensorFlowOnSpark.
"""

from pyspark.sql import SparkSession

from tensorflowonspark import TFCluster


def main_fun(args, ctx):
    import tensorflow as tf

    from hops import devices, tensorboard

    logdir = tensorboard.logdir()
    with tf.summary.create_file_writer(logdir).as_default():
        tf.summary.scalar("gpus", devices.get_num_gpus(), step=0)
    print("logdir", logdir)


if __name__ == "__main__":
    spark = SparkSession.builder.getOrCreate()

    from hops import util

    # Get the number of parameter servers and executors configured for Jupyter
    num_param_servers = util.num_param_servers(spark)
    num_executors = util.num_executors(spark)

    cluster = TFCluster.run(
        spark.sparkContext, main_fun, None, num_executors, num_param_servers, tensorboard=True
    )
    cluster.shutdown()
    print("ran on", num_executors, "executors with", num_param_servers, "parameter servers")
    spark.stop()
