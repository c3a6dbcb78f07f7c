"""Spark reads a topic in micro-batches; several drivers share the topic.

    spark-submit examples/spark_threaded.py localhost:9092 orders /data/orders

Each batch has its own folder, because drivers must not append to one folder at the same time. On
SIGTERM the program writes and commits its batch, then ends.
"""

import signal
import sys

from pyspark.sql import SparkSession

from kgroup import GroupConfig
from kgroup.spark.threaded import batches
from kgroup.threaded import ConsumerGroup

_, servers, topic, folder = sys.argv
spark = SparkSession.builder.appName(topic).getOrCreate()
config = GroupConfig(bootstrap_servers=servers, group_id=f"{topic}-spark", topics=[topic])
with ConsumerGroup(config) as group:
    signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
    for generation in group:
        with generation.scope():
            for batch in batches(generation, spark, max_records=1_000_000):
                place = f"{folder}/batch={batch.id}"
                batch.run(lambda df, to: df.write.mode("overwrite").parquet(to), place)
                batch.commit()
