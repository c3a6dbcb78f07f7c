"""What to do about a login that a broker refuses, for both planes: kgroup's own, and librdkafka."""

from __future__ import annotations

from typing import Final

from kgroup.security.settings import SecurityProtocol

CHECK_PASSWORD: Final = "check user name and password"  # noqa: S105 # an advice
CHECK_TOKEN: Final = "check the token's issuer, audience, scope and lifetime"  # noqa: S105
TOO_SOON: Final = (
    "the client has logged in again too soon, as with a token that is about to expire, or this port"
    " has no login"
)
"""Brokers answer both with the same error."""
_MOST_SHOWN: Final = 500


def no_login(protocol: SecurityProtocol) -> str:
    """The advice for a port that takes no login.

    Args:
        protocol: the client's; the port speaks the same one without the login.
    """
    instead = SecurityProtocol.SSL if protocol.tls else SecurityProtocol.PLAINTEXT
    return f"this port has no login; use protocol {instead.value}, or another port"


def use_mechanism(enabled: str) -> str:
    """The advice for a mechanism that the broker does not have.

    Args:
        enabled: those that it has, separated by commas.
    """
    return f"the broker has these mechanisms: {enabled or 'none':.{_MOST_SHOWN}}; use one of them"
