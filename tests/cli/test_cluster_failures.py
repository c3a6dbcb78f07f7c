"""What the operating commands say where the cluster refuses or is not there: one line each."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import attrs
import pytest
import trio
import trustme
from click.testing import CliRunner, Result
from confluent_kafka import KafkaError

from kgroup.broker import (
    Acl,
    BrokerSecurity,
    EmbeddedBroker,
    EmbeddedCluster,
    serve,
    serve_cluster,
)
from kgroup.cli import admin_client, main
from kgroup.cli.admin_client import (
    AdminConnection,
    ClusterError,
    Refusal,
    client_settings,
    passes,
)
from kgroup.cli.groups.coordinator_request import CoordinatorRequest
from kgroup.error_codes import ErrorCode
from kgroup.security.credentials import Credentials, Token
from kgroup.security.settings import Security
from kgroup.types import TopicPartition

LOGIN = (
    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    'sasl.jaas.config=PlainLoginModule required username="{}" password="{}";\n'
)
SECURITY = BrokerSecurity(
    users={"alice": "a", "bob": "b", "root": "r"},
    super_users=["root"],
    acls=[
        Acl("alice", "describe", "topic", "*"),
        Acl("alice", "describe", "group", "seen"),
        Acl("alice", "read", "group", "joined"),
        Acl("bob", "describe", "group", "seen"),
    ],
)


def commands(servers: str, *arguments: str) -> Result:
    """Run a command in this process; it may take as long as a busy machine needs."""
    return CliRunner().invoke(
        main, [*arguments, "--bootstrap-servers", servers, "--timeout", "120"]
    )


@final
class Cluster:
    """A broker in this process, and commands on it in threads."""

    def __init__(self, broker: EmbeddedBroker | EmbeddedCluster, folder: Path) -> None:
        self.broker = broker
        self._folder = folder

    async def run(self, *arguments: str, login: tuple[str, str] | None = None) -> Result:
        """Run a command, maybe with a user and a password."""
        given = list(arguments)
        if login is not None:
            file = self._folder / "client.properties"
            file.write_text(LOGIN.format(*login))
            given += ["--config", str(file)]
        return await trio.to_thread.run_sync(
            partial(commands, self.broker.bootstrap_servers, *given)
        )

    async def refusal(self, *arguments: str, login: tuple[str, str] = ("alice", "a")) -> str:
        """Run a command that fails; its error."""
        result = await self.run(*arguments, login=login)
        assert result.exit_code == 1, result.output
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1
        return result.stderr


@asynccontextmanager
async def cluster(folder: Path, security: BrokerSecurity | None = None) -> AsyncIterator[Cluster]:
    """One broker with a topic, and a group ``seen`` that has committed."""
    async with serve_cluster(1, security=security) as broker:
        await broker.create_topic("orders", 1)
        here = Cluster(broker, folder)
        given = ["--group", "seen", "--topic", "orders", "--to", "0", "--new-group", "--execute"]
        login = None if security is None else ("root", "r")
        assert (await here.run("groups", "reset", *given, login=login)).exit_code == 0
        yield here


async def test_missing_rights_are_named(tmp_path: Path) -> None:
    """Each refusal says which operation on which group or topic to grant."""
    async with cluster(tmp_path, SECURITY) as here:
        groups = partial(here.refusal, "groups")
        assert "DESCRIBE on group 'other'" in await groups("describe", "--group", "other")
        assert "DESCRIBE on group 'other'" in await groups("lag", "--group", "other")
        given = ["--group", "seen", "--to", "latest"]
        assert (await here.run("groups", "reset", *given, login=("alice", "a"))).exit_code == 0
        alice = ("alice", "a")
        executed = await here.run("groups", "reset", *given, "--execute", "--json", login=alice)
        assert "grant the user READ on group 'seen'" in executed.stdout
        deleted = await here.run("groups", "delete", "--group", "seen", login=alice)
        assert "GROUP_AUTHORIZATION_FAILED: grant the user DELETE on group 'seen'" in deleted.stdout
        assert "grant the user READ on topic 'orders'" in await here.refusal("consume", "orders")
        unjoined = await here.refusal("consume", "orders", "--group", "seen")
        assert "grant the user READ on group 'seen'" in unjoined
        listed = await here.run("groups", "list", login=("alice", "a"))
        assert "seen" in listed.stdout


async def test_topics_that_a_user_may_not_see(tmp_path: Path) -> None:
    """Kafka does not say whether such a topic exists; the texts name the right that may lack."""
    async with cluster(tmp_path, SECURITY) as here:
        bob = ("bob", "b")
        said = await here.refusal("consume", "orders", login=bob)
        assert "there is no topic 'orders', or this user lacks READ on it" in said
        given = ["reset", "--to", "latest", "--group", "seen"]
        assert "or this user lacks DESCRIBE on their topics; name" in await here.refusal(
            "groups", *given, login=bob
        )
        given += ["--topic", "orders"]
        assert (
            "there is no topic 'orders', or this user lacks DESCRIBE on it"
            in await here.refusal("groups", *given, login=bob)
        )


async def test_offsets_that_a_user_may_not_request(tmp_path: Path) -> None:
    """A right that is taken away while a command runs is named with its topic by every command."""
    grant = "TOPIC_AUTHORIZATION_FAILED: grant the user {} on topic 'orders'"
    async with serve() as broker:
        await broker.create_topic("orders", 1)
        here = Cluster(broker, tmp_path)
        given = ["--group", "seen", "--topic", "orders", "--to", "0", "--new-group", "--execute"]
        assert (await here.run("groups", "reset", *given)).exit_code == 0
        broker.inject("list_offsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None)
        for begin in ("5", "2026-10-01T12:00:00Z"):
            result = await here.run("consume", "orders", "--from", begin)
            assert result.exit_code == 1
            assert f"the offsets of orders-0 cannot be requested: {grant.format('READ')}" in (
                result.stderr
            )
        grant = grant.format("DESCRIBE")
        lag = await here.run("groups", "lag", "--group", "seen", "--json")
        assert grant in lag.stdout
        for to in ("latest", "2026-10-01T12:00:00Z"):
            reset = await here.run("groups", "reset", "--group", "seen", "--to", to, "--json")
            assert f"stays: {grant}" in reset.stdout


@pytest.mark.parametrize("command", [["groups", "list"], ["consume", "orders"]])
async def test_a_wrong_password_ends_the_command(tmp_path: Path, command: list[str]) -> None:
    """It does not wait for the time-out, and says that the login was refused."""
    async with cluster(tmp_path, SECURITY) as here:
        said = await here.refusal(*command, login=("alice", "wrong"))
        assert "the connection was refused" in said
        assert "check user name and password" in said
        assert "KGROUP" not in said


async def test_a_wrong_password_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable, which took precedence over a file that is right."""
    async with cluster(tmp_path, SECURITY) as here:
        monkeypatch.setenv("KGROUP_PASSWORD", "wrong")
        said = await here.refusal("groups", "list")
        assert "(KGROUP_PASSWORD of the environment took precedence over --config)" in said


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("command", [["groups", "list"], ["consume", "orders"]])
async def test_no_login_at_a_port_that_wants_one(
    tmp_path: Path, command: list[str], tls: bool
) -> None:
    """Such a port answers ApiVersions; the error says that it asks for a login, and by what."""
    listener, properties = server_certificate(tmp_path, "127.0.0.1")
    file = tmp_path / "client.properties"
    file.write_text(properties if tls else "")
    security = attrs.evolve(listener, users={"alice": "a"}) if tls else SECURITY
    async with serve_cluster(1, security=security) as broker:
        given = [*command, "--bootstrap-servers", broker.bootstrap_servers, "--timeout=1"]
        result = await trio.to_thread.run_sync(
            partial(CliRunner().invoke, main, [*given, "--config", str(file)])
        )
    assert result.exit_code == 1
    expected = f"asks for a login: use protocol {'SASL_SSL' if tls else 'SASL_PLAINTEXT'}"
    assert expected in result.stderr
    assert "--config gives the protocol and the login" in result.stderr


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_login_at_a_port_without_it(tmp_path: Path, mechanism: str) -> None:
    """The error says that the port has no login, or which mechanisms it has."""
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        "sasl.username=alice\nsasl.password=a\n"
    )
    given = ["groups", "list", "--config", str(file)]
    async with serve_cluster(1) as broker:
        result = await Cluster(broker, tmp_path).run(*given)
    assert "this port has no login; use protocol PLAINTEXT" in result.stderr
    security = BrokerSecurity(users={"alice": "a"}, mechanisms=["SCRAM-SHA-256"])
    async with serve_cluster(1, security=security) as broker:
        result = await Cluster(broker, tmp_path).run(*given)
    assert "the broker has these mechanisms: SCRAM-SHA-256; use one of them" in result.stderr


@pytest.mark.parametrize("begin", ["5", "1h"])
async def test_partitions_without_a_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: str
) -> None:
    """A command waits for their leaders, and in the end says that there are none."""
    given = ["consume", "orders", "--from", begin, "--until-end"]
    async with serve_cluster(2, settings={"default.replication.factor": 1}) as broker:
        await broker.create_topic("orders", 2)
        away = broker.nodes[broker.leader_of(TopicPartition("orders", 1)) or 0]
        away.kill()
        here = Cluster(broker, tmp_path)
        impatient = [*given, "--bootstrap-servers", broker.bootstrap_servers, "--timeout=1"]
        refused = await trio.to_thread.run_sync(partial(CliRunner().invoke, main, impatient))
        assert refused.exit_code == 1
        reason = "Error: the offsets of orders-1 cannot be requested: LEADER_NOT_AVAILABLE"
        assert reason in refused.stderr
        asked_for_it_alone = trio.Event()
        seen: list[Refusal] = []

        def noted(answer: object) -> bool:
            if not passes(answer):
                return False
            seen.append(answer)
            if len(seen) == 3:
                trio.from_thread.run_sync(asked_for_it_alone.set)
            return True

        monkeypatch.setattr(admin_client, "passes", noted)
        async with trio.open_nursery() as nursery:

            async def succeed() -> None:
                result = await here.run(*given)
                assert result.exit_code == 0, result.output

            nursery.start_soon(succeed)
            await asked_for_it_alone.wait()
            await away.start()


def server_certificate(folder: Path, *names: str) -> tuple[BrokerSecurity, str]:
    """A listener with a certificate for these names, and the properties that trust its issuer."""
    authority = trustme.CA()
    chain, ca = folder / "chain.pem", folder / "ca.pem"
    authority.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(str(chain))
    authority.cert_pem.write_to_path(str(ca))
    properties = f"security.protocol=SSL\nssl.ca.location={ca}\n"
    return BrokerSecurity(tls=True, certificate=str(chain)), properties


@pytest.mark.parametrize("command", [["groups", "list"], ["consume", "orders"]])
async def test_a_certificate_for_another_host(tmp_path: Path, command: list[str]) -> None:
    """librdkafka blames the authority; the command says that the name does not match."""
    security, properties = server_certificate(tmp_path, "broker.example.com")
    file = tmp_path / "client.properties"
    file.write_text(properties)
    async with serve_cluster(1, security=security) as broker:
        result = await Cluster(broker, tmp_path).run(*command, "--config", str(file))
    assert result.exit_code == 1
    assert "the connection was refused: the certificate of " in result.stderr
    assert (
        "certificate is not valid for '127.0.0.1'; connect by a name that it has" in result.stderr
    )
    assert "ssl.ca.location" not in result.stderr


async def test_a_certificate_that_does_not_name_where_a_broker_advertises_itself(
    tmp_path: Path,
) -> None:
    """The reason is that of the broker in librdkafka's text, and not of the bootstrap server."""
    security, properties = server_certificate(tmp_path, "localhost")
    file = tmp_path / "client.properties"
    file.write_text(properties)
    async with serve_cluster(1, security=security) as broker:  # it advertises 127.0.0.1
        servers = f"localhost:{broker.bootstrap_servers.rpartition(':')[2]}"
        given = ["groups", "list", "--config", str(file)]
        result = await trio.to_thread.run_sync(partial(commands, servers, *given))
    assert result.exit_code == 1
    assert "certificate is not valid for '127.0.0.1'" in result.stderr


ANSWERS: Final = {
    "HTTP": (b"HTTP/1.1 400 Bad Request\r\n\r\n", "The answer is HTTP: the port belongs to a web"),
    "nothing": (b"", "or to another program than Kafka: .*; --config gives the protocol"),
}


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("command", [["groups", "list"], ["consume", "orders"]])
async def test_a_port_that_is_not_kafkas(kind: str, command: list[str]) -> None:
    """The error says what the port may be, and never to raise a limit of librdkafka's."""
    answer, expected = ANSWERS[kind]

    async def serve_one(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError):
            while answer and await stream.receive_some():
                await stream.send_all(answer)
            await stream.receive_some()
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(trio.serve_listeners, serve_one, listeners)
        host, port = listeners[0].socket.getsockname()
        given = [*command, f"--bootstrap-servers={host}:{port}", "--timeout=1"]
        result = await trio.to_thread.run_sync(partial(CliRunner().invoke, main, given))
        nursery.cancel_scope.cancel()
    assert result.exit_code == 1
    assert f"no answer from {host}:{port} within 1 s: " in result.stderr
    assert re.search(expected, result.stderr), result.stderr
    assert "receive.message.max.bytes" not in result.stderr


async def test_a_coordinator_that_moves_is_waited_for(tmp_path: Path) -> None:
    """While it is away no command fails, and none crashes in librdkafka."""
    async with cluster(tmp_path) as here:
        for command in (["describe"], ["lag"], ["reset", "--to", "latest", "--execute"]):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(here.broker.restart_coordinator, away=0.5))
                result = await here.run("groups", *command, "--group", "seen")
                assert result.exit_code == 0, result.output


async def test_one_broker_that_hangs_hides_nothing_of_the_others(tmp_path: Path) -> None:
    """The commands say what is missing, and print what the other brokers have answered."""
    async with serve_cluster(3) as broker:
        await broker.create_topic("orders", 3)
        here = Cluster(broker, tmp_path)
        given = ["--group", "seen", "--topic", "orders", "--to", "0", "--new-group", "--execute"]
        assert (await here.run("groups", "reset", *given)).exit_code == 0
        coordinator = broker.coordinator_of("seen")
        hanging = next(one for one in broker.nodes if one != coordinator)

        async def run(*arguments: str) -> Result:
            given = [*arguments, "--bootstrap-servers", broker.bootstrap_servers, "--timeout=8"]
            result = await trio.to_thread.run_sync(partial(CliRunner().invoke, main, given))
            assert result.exit_code == 0, (result.output, result.exception)
            return result

        with_answer = broker.nodes[hanging].slow(300.0, "list_groups")
        for command in ("describe", "lag"):
            result = await run("groups", command, "--json")
            found = json.loads(result.stdout)
            assert [one["group_id"] for one in found["groups"]] == ["seen"]
            assert found["errors"] == ["a broker has not answered within 8 s"]
            assert result.stderr.startswith("Some groups may be missing: a broker has not")
        with_answer.cancel()
        broker.nodes[hanging].slow(300.0, "list_offsets")
        (lag,) = json.loads((await run("groups", "lag", "--group", "seen", "--json")).stdout)[
            "groups"
        ]
    ends = [one["end"] for one in lag["partitions"]]
    assert sorted(ends, key=str) == [0, 0, None]
    assert lag["partitions"][ends.index(None)]["note"] == "no answer within 8 s"


async def test_a_coordinator_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    """Not once for each of its groups, of which there may be hundreds."""
    async with cluster(tmp_path) as here:
        assert isinstance(here.broker, EmbeddedCluster)
        given = ["--topic", "orders", "--to", "0", "--new-group", "--execute"]
        for name in ("second", "third"):
            assert (await here.run("groups", "reset", "--group", name, *given)).exit_code == 0
        (node,) = here.broker.nodes.values()
        fault = node.slow(300.0, "offset_fetch")
        servers = here.broker.bootstrap_servers
        lag = ["groups", "lag", "--bootstrap-servers", servers, "--timeout=3", "--json"]
        result = await trio.to_thread.run_sync(partial(CliRunner().invoke, main, lag))
        assert (result.exit_code, fault.seen) == (0, 1), result.output
    errors = json.loads(result.stdout)["errors"]
    assert errors[0] == "group 'second': the offsets of group 'second' cannot be fetched within 3 s"
    assert [one.partition(" from ")[0] for one in errors[1:]] == [
        "group 'seen': no answer",
        "group 'third': no answer",
    ]


async def test_a_coordinator_that_loads_one_group_hides_no_other(tmp_path: Path) -> None:
    """It has answered, so the lags of its other groups are fetched, and none is called silent."""
    async with cluster(tmp_path) as here:
        assert isinstance(here.broker, EmbeddedCluster)
        given = ["--topic", "orders", "--to", "0", "--new-group", "--execute"]
        assert (await here.run("groups", "reset", "--group", "another", *given)).exit_code == 0
        (node,) = here.broker.nodes.values()
        loading = node.inject("offset_fetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        sent = CoordinatorRequest.send

        def send(request: CoordinatorRequest[Any], servers: str, group: str, *rest: Any) -> Any:
            if group != "another":
                loading.cancel()
            return sent(request, servers, group, *rest)

        servers = here.broker.bootstrap_servers
        lag = ["groups", "lag", "--bootstrap-servers", servers, "--timeout=8", "--json"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CoordinatorRequest, "send", send)
            result = await trio.to_thread.run_sync(partial(CliRunner().invoke, main, lag))
    assert result.exit_code == 0, (result.output, result.exception)
    found = json.loads(result.stdout)
    assert [one["group_id"] for one in found["groups"]] == ["seen"]
    (error,) = found["errors"]
    assert "COORDINATOR_LOAD_IN_PROGRESS" in error


async def test_no_group_that_is_seen_is_no_group_at_all(tmp_path: Path) -> None:
    """Where a broker has not answered, the command does not say that there are no groups."""
    async with serve_cluster(2) as broker:
        (hanging, *_) = broker.nodes.values()
        hanging.slow(300.0, "list_groups")
        given = ["groups", "list", "--bootstrap-servers", broker.bootstrap_servers, "--timeout=8"]
        result = await trio.to_thread.run_sync(partial(CliRunner().invoke, main, given))
    assert result.exit_code == 0, (result.output, result.exception)
    assert "no group that this user may see" in result.stdout
    assert "There are no consumer groups" not in result.stdout


async def test_a_change_without_an_answer(tmp_path: Path) -> None:
    """It may have been made: the command says so, and still prints the offsets of before."""
    async with cluster(tmp_path) as here:
        assert isinstance(here.broker, EmbeddedCluster)
        servers, (node,) = here.broker.bootstrap_servers, here.broker.nodes.values()

        async def unanswered(api: str, *arguments: str) -> Result:
            fault = node.slow(60.0, api)
            given = [*arguments, "--bootstrap-servers", servers, "--timeout=3", "--json"]
            result = await trio.to_thread.run_sync(partial(CliRunner().invoke, main, given))
            assert (result.exit_code, fault.seen > 0) == (1, True), result.output
            fault.cancel()
            return result

        reset = ["groups", "reset", "--group", "seen", "--to", "latest", "--execute"]
        result = await unanswered("offset_commit", *reset)
        (partition,) = json.loads(result.stdout)["partitions"]
        assert partition["committed"] == 0
        assert "the offset may have been set: see `kgroup groups lag`" in partition["error"]
        assert result.stderr == "Error: not confirmed for 1 of 1 partitions\n"
        result = await unanswered("delete_groups", "groups", "delete", "--group", "seen")
        (group,) = json.loads(result.stdout)["groups"]
        assert "the group may have been deleted: see `kgroup groups list`" in group["error"]
        assert result.stderr == "Error: not confirmed as deleted: seen\n"


async def test_a_change_that_a_coordinator_cannot_confirm(tmp_path: Path) -> None:
    """It is tried again; if that never helps, it may have been made all the same.

    A coordinator whose replicas do not confirm a write in time has written it.
    """
    async with cluster(tmp_path) as here:
        assert isinstance(here.broker, EmbeddedCluster)
        servers, (node,) = here.broker.bootstrap_servers, here.broker.nodes.values()
        reset = ["groups", "reset", "--group", "seen", "--to", "latest", "--execute", "--json"]
        node.inject("offset_commit", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
        assert (await here.run(*reset)).exit_code == 0

        async def unconfirmed(api: str, *arguments: str) -> str:
            node.inject(api, ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None)
            given = [*arguments, "--bootstrap-servers", servers, "--timeout=3"]
            result = await trio.to_thread.run_sync(partial(CliRunner().invoke, main, given))
            assert result.exit_code == 1
            return result.stdout

        (partition,) = json.loads(await unconfirmed("offset_commit", *reset))["partitions"]
        assert partition["error"] == (
            "COORDINATOR_NOT_AVAILABLE; the offset may have been set: see `kgroup groups lag`"
        )
        assert await unconfirmed("delete_groups", "groups", "delete", "--group", "seen") == (
            "Group seen: COORDINATOR_NOT_AVAILABLE; the group may have been deleted: see `kgroup"
            " groups list`\n"
        )


async def test_an_attempt_that_has_too_little_time(tmp_path: Path) -> None:
    """The error is what the coordinator has answered before, and not that it has not answered."""
    refused = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "moves")
    late = Refusal(KafkaError._TIMED_OUT, "no answer")
    answers = iter([refused])

    def change(servers: str) -> object:
        connection = AdminConnection(servers, Security(), 1.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AdminConnection, "_wait", lambda *_: next(answers, late))
            return connection.change(
                lambda _, keys, __: {one: Future[None]() for one in keys}, ["g"], "it may be made"
            )

    async with cluster(tmp_path) as here:
        found = await trio.to_thread.run_sync(change, here.broker.bootstrap_servers)
    assert found == {"g": attrs.evolve(refused, outcome="it may be made")}


async def test_a_change_that_is_found_made_when_it_is_repeated(tmp_path: Path) -> None:
    """A group is not found then, because the first attempt has deleted it: the output says so."""
    async with cluster(tmp_path) as here:
        assert isinstance(here.broker, EmbeddedCluster)
        (node,) = here.broker.nodes.values()
        node.inject("delete_groups", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        node.inject("delete_groups", ErrorCode.GROUP_ID_NOT_FOUND)
        result = await here.run("groups", "delete", "--group", "seen")
        assert result.exit_code == 1
        assert result.stdout == (
            "Group seen: GROUP_ID_NOT_FOUND; the group may have been deleted: see `kgroup groups"
            " list`\n"
        )
        unknown = await here.run("groups", "delete", "--group", "unknown")
        assert "may have been deleted" not in unknown.output


async def test_a_name_that_a_share_group_has(tmp_path: Path) -> None:
    """Kafka's error for a commit to it reads as if there was no group of this name."""
    async with cluster(tmp_path) as here:
        assert isinstance(here.broker, EmbeddedCluster)
        (node,) = here.broker.nodes.values()
        node.inject("offset_commit", ErrorCode.GROUP_ID_NOT_FOUND)
        given = ["--group", "sharers", "--new-group", "--topic", "orders", "--to", "0"]
        result = await here.run("groups", "reset", *given, "--execute")
    assert result.exit_code == 1
    assert "a group of this name has no committed offsets of its own" in result.stdout


async def test_records_that_are_printed_and_not_committed(tmp_path: Path) -> None:
    """The command fails, because the group reads them again."""
    async with cluster(tmp_path) as here:
        assert isinstance(here.broker, EmbeddedCluster)
        await here.broker.append("orders", 0, [b"one"])
        (node,) = here.broker.nodes.values()
        node.inject("offset_commit", "GROUP_AUTHORIZATION_FAILED", times=None)
        result = await here.run("consume", "orders", "--group", "readers", "--max-records", "1")
    assert result.stdout.endswith("one\n")
    assert result.exit_code == 1
    assert "the last offsets were not confirmed: group 'readers' may read" in result.stderr


def test_a_broker_that_is_not_there() -> None:
    """The error names the address, the time-out and the reason."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        for command in (["groups", "list"], ["consume", "orders"]):
            arguments = [*command, "--bootstrap-servers", where, "--timeout", "1"]
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 1
            assert f"no answer from {where} within 1 s: " in result.stderr
            assert "Connection refused" in result.stderr


async def test_a_token_logs_in(tmp_path: Path) -> None:
    """Both clients with which a reset is planned log in by OAUTHBEARER."""
    async with serve_cluster(1, security=BrokerSecurity(mechanisms=["OAUTHBEARER"])) as broker:
        file = tmp_path / "client.properties"
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f'sasl.jaas.config={module} required unsecuredLoginStringClaim_sub="alice";\n'
        )
        await broker.create_topic("orders", 1)
        given = ["groups", "reset", "--group", "new", "--new-group", "--topic", "orders"]
        result = await Cluster(broker, tmp_path).run(*given, "--to", "0", "--config", str(file))
        assert result.exit_code == 0, result.output


def test_logins_that_are_looked_up() -> None:
    """A function of the settings is called for user and password, and for each token.

    The first token is ready when librdkafka asks for it: no second call could fail by then.
    """
    password = Security(
        protocol="SASL_SSL",
        mechanism="PLAIN",
        credentials=lambda: Credentials("alice", "secret"),
    )
    made = client_settings("localhost:1", password)
    assert (made["sasl.username"], made["sasl.password"]) == ("alice", "secret")
    tokens = [Token("abc", 4e9, "alice", {"scope": "x"})]
    bearer = Security(protocol="SASL_SSL", mechanism="OAUTHBEARER", token=tokens.pop)
    made = client_settings("localhost:1", bearer)
    assert not tokens
    assert made["oauth_cb"]("") == ("abc", 4e9, "alice", {"scope": "x"})
    tokens.append(Token("def", 4e9, "alice"))
    assert made["oauth_cb"]("") == ("def", 4e9, "alice", {})


def test_a_login_that_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what the function raised."""
    monkeypatch.setattr("kgroup.wire.logins.FIRST_WAIT", 0.01)

    def fail() -> Token:
        raise OSError("the provider is away")

    security = Security(
        protocol="SASL_SSL",
        mechanism="OAUTHBEARER",
        token=fail,
    )
    with pytest.raises(ClusterError, match="the provider is away"):
        client_settings("localhost:1", security)
