"""A Consumer that has lost its brokers is noticed, and only such a one is replaced."""

from __future__ import annotations

from kgroup.records.lost_brokers import ALERT, INTERVAL, PATIENCE, QUIET, LostBrokers


def test_a_consumer_that_reads_is_not_checked() -> None:
    """While records arrive, nothing is asked for."""
    lost = LostBrokers(0.0)
    for now in range(1000):
        assert not lost.must_check(float(now))
        lost.connected(float(now))


def test_a_quiet_consumer_is_checked_now_and_then() -> None:
    """Without records and without errors, there is one check in a long time."""
    lost = LostBrokers(0.0)
    assert not lost.must_check(QUIET - 0.1)
    assert lost.must_check(QUIET)
    lost.connected(QUIET)
    assert not lost.must_check(2 * QUIET - 0.1)


def test_an_error_is_checked_soon_and_for_a_while() -> None:
    """Errors bring the check nearer, many errors do not put it off, and one check is not enough."""
    lost = LostBrokers(0.0)
    for now in (5.0, 5.5, 5.9):
        lost.suspect(now)
    checks = []
    for tenth in range(50, 400):
        if lost.must_check(tenth / 10):
            checks.append(tenth / 10)
            lost.connected(tenth / 10)
    assert checks[0] == 5.0 + INTERVAL
    soon = [at for at in checks if at <= 5.9 + ALERT]
    assert len(soon) == ALERT
    assert checks[len(soon) + 1] - checks[len(soon)] == QUIET


def test_a_consumer_without_brokers_is_replaced_after_a_while() -> None:
    """It is checked again and again for some seconds; a broker that comes back ends that."""
    lost = LostBrokers(0.0)
    lost.connected(0.0)
    assert not lost.must_replace(10.0)
    assert not lost.must_check(10.0)
    assert lost.must_check(10.0 + INTERVAL)
    assert not lost.must_replace(10.0 + PATIENCE - 0.1)
    lost.connected(13.0)
    assert not lost.must_replace(14.0)
    assert lost.must_replace(14.0 + PATIENCE)


def test_a_consumer_that_never_had_a_broker_is_kept() -> None:
    """A new Consumer would wait for the brokers just as well."""
    lost = LostBrokers(0.0)
    assert not any(lost.must_replace(float(now)) for now in range(100))
