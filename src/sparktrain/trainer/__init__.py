"""The child process that runs the user's function: TensorFlow and Keras, never pyspark."""
