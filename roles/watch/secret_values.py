"""The values of the secrets that the files of the server hold."""

from __future__ import annotations

from core.model import Rack
from core.model.declared_secrets import secret_problems
from core.model.secrets import SecretError, SecretRef


def resolve(rack: Rack, ref: SecretRef) -> str:
    """Fetch a secret. Raises ValueError when that fails; the message does not have it."""
    fault = ""
    try:
        return ref.resolve().get_secret_value()
    except SecretError as error:
        fault = next(iter(secret_problems(rack, [ref])), str(error))
    raise ValueError(fault)
