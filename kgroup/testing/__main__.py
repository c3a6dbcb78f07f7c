"""Prepares for many tests with Apache Kafka: makes the archive of Kafka's classes."""

import click

from kgroup.testing.archive import make_archive
from kgroup.testing.java import KafkaUnavailableError


@click.command()
def prepare() -> None:
    """Make the archive of Kafka's classes and print its path."""
    try:
        click.echo(make_archive())
    except KafkaUnavailableError as error:
        # Not an error: tests run without it, only slower.
        click.echo(error)


if __name__ == "__main__":
    prepare(prog_name="python -m kgroup.testing")
