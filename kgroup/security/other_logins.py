"""Logins of the Java client that kgroup does not have, and what to use instead of each.

A property file names such a login by its mechanism, its login module or its callback handler, and
an error about any of them says the same.

Source: aws-msk-iam-auth's README.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KERBEROS: Final = "Kerberos is impossible with the wheels of confluent-kafka"
_MSK_IAM: Final = (
    "Amazon MSK's login with IAM works here by OAUTHBEARER and a function that makes tokens with"
    " aws-msk-iam-sasl-signer-python: Security.from_properties(..., mechanism='OAUTHBEARER',"
    " token=...), as docs/providers.md shows (Amazon MSK, with IAM)"
)
_INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "aws_msk_iam",
            "iamloginmodule",
            "iamclientcallbackhandler",
            "iamoauthbearerlogincallbackhandler",
        ),
        _MSK_IAM,
    ),
    **dict.fromkeys(("gssapi", "krb5loginmodule"), KERBEROS),
}
"""By mechanism, or by class without its package: copies of a library have other packages."""


def instead_of(name: str) -> str:
    """What to use instead of a mechanism or a class of another login; empty if it is not known."""
    return _INSTEAD.get(name.strip().rpartition(".")[2].lower(), "")
