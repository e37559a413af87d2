"""Bodies of evaluation answers, by endpoint and version (spec: sdk-wire 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import orjson

from hoglab.flags.matching.outcome import FlagOutcome


class AnswerForm(Enum):
    """Form of flags in an answer."""

    LIST = "keys of the enabled flags"
    ENABLED = "values of the enabled flags"
    LEGACY = "values of all flags"
    RECORDS = "a record for each flag"
    TYPED = "a typed record for each flag"


def flags_form(version: int) -> AnswerForm:
    """Return the form of ``/flags/?v=…``."""
    if version >= 3:
        return AnswerForm.TYPED
    return AnswerForm.RECORDS if version == 2 else AnswerForm.LEGACY


def decide_form(version: int) -> AnswerForm:
    """Return the form of ``/decide/?v=…``."""
    return {1: AnswerForm.LIST, 2: AnswerForm.ENABLED, 3: AnswerForm.LEGACY}.get(version, AnswerForm.RECORDS)


def encode_answer(
    form: AnswerForm,
    outcomes: Sequence[FlagOutcome],
    *,
    errors: bool,
    request_id: str,
    evaluated_at_ms: int,
    config: dict[str, Any] | None = None,
) -> bytes:
    """Return the whole body.

    ``errors`` says that some flag failed, ``request_id`` is the text of a UUID, and ``config`` adds remote-config
    fields.
    """
    # Written by hand: the records are encoded already, and request ids are UUIDs, so nothing needs quoting.
    parts = [b"{"]
    if form is AnswerForm.RECORDS:
        parts += (b'"flags":{', b",".join([outcome.v2_member for outcome in outcomes]), b"}")
    elif form is AnswerForm.TYPED:
        parts += (b'"flags":{', b",".join([outcome.typed_member for outcome in outcomes]), b"}")
    else:
        parts.append(_values(form, outcomes))
    if form is not AnswerForm.LIST:
        parts.append(_FAILED if errors else _SOUND)
    parts.append(b',"requestId":"%b","evaluatedAt":%d' % (request_id.encode(), evaluated_at_ms))
    parts.append(b"}" if config is None else b"," + orjson.dumps(config)[1:])
    return b"".join(parts)


_SOUND = b',"errorsWhileComputingFlags":false'
_FAILED = b',"errorsWhileComputingFlags":true'


def _values(form: AnswerForm, outcomes: Sequence[FlagOutcome]) -> bytes:
    """Return the fields of the forms that show bare values; what failed has none."""
    known = [outcome for outcome in outcomes if not outcome.failed]
    shown = known if form is AnswerForm.LEGACY else [outcome for outcome in known if outcome.enabled]
    if form is AnswerForm.LIST:
        return b'"featureFlags":' + orjson.dumps([outcome.key for outcome in shown])
    values = b'"featureFlags":' + orjson.dumps({outcome.key: outcome.value for outcome in shown})
    payloads = {outcome.key: outcome.payload for outcome in known if outcome.payload is not None}
    if form is AnswerForm.LEGACY:
        return values + b',"featureFlagPayloads":' + orjson.dumps(payloads)
    return values
