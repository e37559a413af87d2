"""Secrets of functions: sealed at rest, kept out of logs."""

from hoglab.functions.secrets.box import MASK, SecretBox, Secrets, SecretsError
from hoglab.functions.secrets.redaction import Redact, redactor
from hoglab.functions.secrets.rotation import rotate
from hoglab.functions.secrets.sealed_check import (
    check_secrets,
    check_shared_secrets,
    is_prepared,
    keep_check,
    unreadable_secrets,
)

__all__ = [
    "MASK",
    "Redact",
    "SecretBox",
    "Secrets",
    "SecretsError",
    "check_secrets",
    "check_shared_secrets",
    "is_prepared",
    "keep_check",
    "redactor",
    "rotate",
    "unreadable_secrets",
]
