"""``kgroup consume``: its options, where it begins, and when it ends.

``reading`` reads the records, ``formats`` prints them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Final

import click

from kgroup import bounds
from kgroup.cli.admin_client import NO_OFFSET, AdminConnection, ClusterError, Refusal
from kgroup.cli.cluster_options import clustered, isolation_option, text
from kgroup.cli.consume.formats import Format, Record, as_json, as_text
from kgroup.cli.consume.reading import BEGINNING, END, ConsumeOptions, Reading
from kgroup.cli.groups.cluster import GroupCluster
from kgroup.cli.groups.report import members
from kgroup.cli.groups.values import Group
from kgroup.cli.log_bounds import fetch_bounds
from kgroup.cli.options import WholeNumber, security_of
from kgroup.cli.position_options import Position, PositionKind, TopicChoice, chosen, position_of
from kgroup.cli.signals import signals_held
from kgroup.errors import short_repr
from kgroup.security.settings import Security
from kgroup.types import INT32_MAX, IsolationLevel, TopicPartition, topic_fault

__all__ = ["consume"]

MOST_RECORDS: Final = 10**12
_NEEDED: Final = "READ"
"""What reading needs on a topic; it implies DESCRIBE."""
_FOUND: Final = {PositionKind.EARLIEST: BEGINNING, PositionKind.LATEST: END}


def _topics(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> tuple[str, ...]:
    del context, option
    for value in values:
        if fault := topic_fault(value):
            raise click.BadParameter(f"the topic name {short_repr(value)} {fault}")
    return tuple(dict.fromkeys(values))


def _format_option(name: str, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        name,
        type=click.Choice([one.value for one in Format]),
        default=Format.TEXT.value,
        show_default=True,
        callback=lambda context, option, value: Format(value),
        help=f"How {what} are shown; text that is not UTF-8 is shown in hex, and what is no JSON as"
        " text.",
    )


@click.command()
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, callback=_topics)
@clustered
@click.option(
    "--group",
    "group_id",
    metavar="GROUP_ID",
    callback=text,
    help="The group to join; what was printed is committed.  [default: read without a group]",
)
@click.option(
    "--from",
    "begin",
    metavar="POSITION",
    default=PositionKind.EARLIEST.value,
    show_default=True,
    callback=position_of,
    help="earliest, latest, an offset, a time with its zone (2026-10-01T12:00:00Z), or a duration"
    " ago (90m, 2d12h). With --group, earliest or latest: where partitions begin of which nothing"
    " is committed.",
)
@click.option(
    "--partition",
    "partitions",
    type=WholeNumber(bounds.whole(0, INT32_MAX)),
    multiple=True,
    help="Only this partition of each topic; may be given more than once.",
)
@click.option(
    "--max-records",
    type=WholeNumber(bounds.whole(1, MOST_RECORDS)),
    help="End after so many records.",
)
@click.option("--until-end", is_flag=True, help="End at the end of all partitions.")
@_format_option("--format", "values")
@_format_option("--key-format", "keys")
@isolation_option("Whether records of open and aborted transactions are read.")
@click.option("--json", "lines", is_flag=True, help="Print each record as a line of JSON.")
def consume(
    topics: Sequence[str],
    bootstrap_servers: str,
    config_file: str | None,
    timeout: float,
    group_id: str | None,
    begin: Position,
    partitions: Sequence[int],
    max_records: int | None,
    format: Format,  # noqa: A002 # the option's name
    key_format: Format,
    isolation: IsolationLevel,
    *,
    until_end: bool,
    lines: bool,
) -> None:
    """Print the records of topics: key, headers, value.

    Without --until-end and --max-records it waits for new records until Ctrl-C.
    """
    if group_id is not None and (partitions or begin.kind not in _FOUND):
        raise click.UsageError(
            "with --group the group decides on partitions and positions: use it without"
            " --partition, and with --from earliest or latest; `kgroup groups reset` sets offsets"
        )
    security = security_of(config_file)
    cluster = GroupCluster(bootstrap_servers, security, timeout)
    if group_id is not None:
        _warn_of_members(cluster, group_id)
    source = _source(
        cluster.connection,
        bootstrap_servers=bootstrap_servers,
        security=security,
        topics=topics,
        group_id=group_id,
        begin=begin,
        partitions=partitions,
        isolation=isolation,
        timeout=timeout,
    )
    printed: Callable[[Record, Format, Format], str] = as_json if lines else as_text
    with Reading(source, _warn) as reading:
        _print(
            reading,
            lambda record: printed(record, key_format, format),
            max_records=max_records,
            until_end=until_end,
        )
    if reading.uncommitted:
        raise ClusterError(
            f"the last offsets were not confirmed: group {group_id!r} may read the last of these"
            " records again"
        )


def _source(
    connection: AdminConnection,
    *,
    bootstrap_servers: str,
    security: Security,
    topics: Sequence[str],
    group_id: str | None,
    begin: Position,
    partitions: Sequence[int],
    isolation: IsolationLevel,
    timeout: float,
) -> ConsumeOptions:
    """What to read; the connection is needed for that only.

    Raises:
        ClusterError: a topic or a partition does not exist, or no broker answered.
    """
    numbers = tuple((one, one) for one in partitions)
    wanted = chosen([TopicChoice(one, numbers) for one in topics], connection.topics(), _NEEDED)
    return ConsumeOptions(
        bootstrap_servers=bootstrap_servers,
        security=security,
        isolation=isolation,
        topics=tuple(topics),
        group_id=group_id,
        from_beginning=begin.kind is not PositionKind.LATEST,
        positions={} if group_id is not None else _positions(connection, wanted, begin),
        timeout=timeout,
    )


def _print(
    reading: Reading,
    show: Callable[[Record], str],
    *,
    max_records: int | None,
    until_end: bool,
) -> None:
    out = sys.stdout.buffer
    left = max_records
    with signals_held() as end_if_signalled:
        while True:
            records = reading.next(end_if_signalled)[:left]
            for record in records:
                out.write(show(record).encode("utf-8", "backslashreplace"))
            out.flush()
            reading.printed(records)
            end_if_signalled()
            if left is not None:
                left -= len(records)
            if left == 0 or (until_end and reading.finished):
                return


def _positions(
    connection: AdminConnection, wanted: Sequence[TopicPartition], begin: Position
) -> dict[TopicPartition, int]:
    """Where each partition begins.

    Raises:
        ClusterError: no broker answered, or one refused.
    """
    if begin.kind in _FOUND:
        return dict.fromkeys(wanted, _FOUND[begin.kind])
    if begin.kind is PositionKind.TIME:
        found = connection.offsets(dict.fromkeys(wanted, begin.value))
        return {one: _known(one, offset) for one, offset in found.items()}
    positions = {}
    for one, log in fetch_bounds(connection, wanted, operation=_NEEDED).items():
        if log.start is None or log.end is None:
            raise ClusterError(f"the offsets of {one} cannot be requested: {log.fault}")
        positions[one] = min(max(begin.value, log.start), log.end)
        if positions[one] != begin.value:
            has = (
                f"has the offsets {log.start} to {log.end - 1}"
                if log.end > log.start
                else f"is empty, and its next offset is {log.end}"
            )
            _warn(f"{one} {has}: begins at {positions[one]}")
    return positions


def _known(partition: TopicPartition, offset: int | Refusal) -> int:
    if isinstance(offset, Refusal):
        why = offset.explained(_NEEDED, topic=partition.topic)
        raise ClusterError(f"the offsets of {partition} cannot be requested: {why}")
    return END if offset == NO_OFFSET else offset


def _warn_of_members(cluster: GroupCluster, group_id: str) -> None:
    """Say that the command takes partitions from the group's members, if it has some.

    A user who may not describe the group may still join it.
    """
    try:
        notice = notice_of(cluster.find(group_id))
    except ClusterError:
        return
    if notice:
        _warn(notice)


def notice_of(group: Group | None) -> str:
    """What joining this group does to its members; empty if it has none."""
    if group is None or not group.members:
        return ""
    return (
        f"group {group.group_id!r} has {members(len(group.members))}: this command joins them, is"
        " assigned some of their partitions, and commits what it prints. To read without taking"
        " part, leave --group away"
    )


def _warn(text: str) -> None:
    click.echo(text, err=True)
