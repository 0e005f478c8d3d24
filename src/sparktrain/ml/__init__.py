"""Keras in Spark ML: estimators that train through run(), and the models they make."""
