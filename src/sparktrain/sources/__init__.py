"""Spark's `tfrecord` data source, in Python: no jar."""
