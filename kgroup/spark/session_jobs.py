"""Spark jobs that can be cancelled together and then take no further one: what the rest uses.

``poisonable`` says what that is, ``classic`` and ``connect`` do it, ``runner`` runs functions in
a thread so that they can be cancelled from trio.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgroup.spark.cancellable_jobs import CancellableJobs, JobGroupCancelledError
from kgroup.spark.runner import Outstay, Runner, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["CancellableJobs", "JobGroupCancelledError", "Outstay", "Runner", "jobs_of", "run_job"]


def jobs_of(spark: SparkSession) -> CancellableJobs:
    """The jobs of a session, classic or Spark Connect.

    Raises:
        UsageError: the session cannot keep the jobs of threads apart, or was stopped.
    """
    # By name: importing the classes of Spark Connect needs packages that a classic program lacks.
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        from kgroup.spark.connect_jobs import ConnectJobs

        return ConnectJobs(spark)

    from kgroup.spark.classic_jobs import ClassicJobs

    return ClassicJobs(spark)
