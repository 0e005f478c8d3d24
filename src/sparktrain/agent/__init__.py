"""What runs inside a Spark task: meets the other nodes, starts and watches the trainer.

Never imports TensorFlow, and never imports `sparktrain.trainer`: that is another process.
"""
