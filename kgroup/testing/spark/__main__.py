"""Gets ready for many tests on Spark: makes the archive that its JVMs start from."""

import click

from kgroup.testing.spark.archive import make_archive
from kgroup.testing.spark.java import SparkUnavailableError


@click.command()
def prepare() -> None:
    """Make the archive that the JVMs of tests start from, and say where it is."""
    try:
        click.echo(make_archive())
    except SparkUnavailableError as error:
        # Tests run without it too.
        click.echo(error)


if __name__ == "__main__":
    prepare(prog_name="python -m kgroup.testing.spark")
