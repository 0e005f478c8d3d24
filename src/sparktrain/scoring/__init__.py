"""Scoring in Spark's own Python workers: a model is loaded once, rows come and go as Arrow."""
