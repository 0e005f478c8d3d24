"""Spark looks for packages of this name: the older name of the format `tfrecord`."""

from sparktrain.sources.tfrecord import RecordSource


class DefaultSource(RecordSource):
    """The same under the name that spark-tensorflow-connector had."""

    @classmethod
    def name(cls) -> str:
        return "tfrecords"
