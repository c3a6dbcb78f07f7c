"""Gets ready for many tests on Spark: makes the archive that its JVMs start from."""

import sys

from kgroup.testing.spark.archive import make_archive
from kgroup.testing.spark.java import SparkUnavailableError

try:
    sys.stdout.write(f"{make_archive()}\n")
except SparkUnavailableError as error:
    # Tests run without it too.
    sys.stdout.write(f"{error}\n")
