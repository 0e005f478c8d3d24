"""Writes TFRecords for as long as it takes: to be killed meanwhile.

python killed_writer.py FOLDER
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

import sparktrain as st

os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "ERROR").getOrCreate()
st.tfrecord.write(spark.range(10**10), sys.argv[1])
