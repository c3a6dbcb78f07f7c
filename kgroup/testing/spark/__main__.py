"""Prepares for many tests on Spark: creates the class archive from which its JVMs start faster."""

import click

from kgroup.testing.spark.archive import make_archive
from kgroup.testing.spark.java import SparkUnavailableError


@click.command()
def prepare() -> None:
    """Create the class archive of the JVMs of tests, and print its path."""
    try:
        click.echo(make_archive())
    except SparkUnavailableError as error:
        # Tests run without the archive too.
        click.echo(error)


if __name__ == "__main__":
    prepare(prog_name="python -m kgroup.testing.spark")
