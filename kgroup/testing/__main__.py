"""Gets ready for many tests on Apache Kafka: makes the archive that its JVMs start from."""

import click

from kgroup.testing.archive import make_archive
from kgroup.testing.java import KafkaUnavailableError


@click.command()
def prepare() -> None:
    """Make the archive that the JVMs of tests start from, and say where it is."""
    try:
        click.echo(make_archive())
    except KafkaUnavailableError as error:
        # Tests run without it too.
        click.echo(error)


if __name__ == "__main__":
    prepare(prog_name="python -m kgroup.testing")
