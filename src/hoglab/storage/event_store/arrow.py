"""Hand columns over to an engine through the Arrow C stream interface, without an Arrow library.

An engine that reads Arrow calls ``__arrow_c_stream__`` and gets C structures that point at buffers of ours
(https://arrow.apache.org/docs/format/CDataInterface.html). Building three kinds of columns needs few lines,
while importing pyarrow for it costs some 40 MB of memory and 0.2 s of every start.
"""

from __future__ import annotations

import struct
import threading
from array import array
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    addressof,
    c_char_p,
    c_int,
    c_int64,
    c_void_p,
    cast,
    memmove,
    memset,
    pointer,
    py_object,
    pythonapi,
    sizeof,
)
from dataclasses import dataclass
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Sequence

    Buffer = bytes | array[int] | None

_NULLABLE = 2  # ARROW_FLAG_NULLABLE


@dataclass(frozen=True, slots=True)
class Column:
    """A column as Arrow lays it out: ``buffers[0]`` is the validity bitmap, None when nothing is null."""

    format: bytes
    length: int
    nulls: int
    buffers: tuple[Buffer, ...]
    metadata: bytes | None = None


def integers(values: Sequence[int | None]) -> Column:
    """Return a column of 64-bit integers."""
    return _numbers(b"l", values)


def small_integers(values: Sequence[int | None]) -> Column:
    """Return a column of 32-bit integers."""
    bitmap, nulls = _validity(values)
    return Column(b"i", len(values), nulls, (bitmap, array("i", _filled(values, nulls, 0))))


def microseconds(values: Sequence[int | None]) -> Column:
    """Return moments without a time zone, given as microseconds since the Unix epoch."""
    return _numbers(b"tsu:", values)


def texts(values: Sequence[str | None]) -> Column:
    """Return strings. A lone surrogate, which UTF-8 cannot write, becomes a question mark."""
    bitmap, nulls = _validity(values)
    if nulls == len(values):
        return Column(b"u", nulls, nulls, (bitmap, array("i", bytes(4 * nulls + 4)), b""))
    filled = _filled(values, nulls, "")
    joined = "".join(filled)
    if joined.isascii():
        return _text(bitmap, nulls, list(map(len, filled)), joined.encode())
    encoded = [value.encode(errors="replace") for value in filled]
    return _text(bitmap, nulls, list(map(len, encoded)), b"".join(encoded))


def encoded_texts(values: Sequence[bytes]) -> Column:
    """Return strings that are valid UTF-8 already."""
    return _text(None, 0, list(map(len, values)), b"".join(values))


def uuids(values: Sequence[UUID | None]) -> Column:
    """Return UUIDs, marked as such, so that they need no cast."""
    bitmap, nulls = _validity(values)
    data = b"".join([value.int.to_bytes(16) for value in _filled(values, nulls, _NO_UUID)])
    return Column(b"w:16", len(values), nulls, (bitmap, data), _UUID)


def _numbers(format_: bytes, values: Sequence[int | None]) -> Column:
    bitmap, nulls = _validity(values)
    return Column(format_, len(values), nulls, (bitmap, array("q", _filled(values, nulls, 0))))


def _text(bitmap: bytes | None, nulls: int, lengths: list[int], data: bytes) -> Column:
    if len(data) < 1 << 31:
        return Column(b"u", len(lengths), nulls, (bitmap, array("i", accumulate(lengths, initial=0)), data))
    return Column(b"U", len(lengths), nulls, (bitmap, array("q", accumulate(lengths, initial=0)), data))


def _validity(values: Sequence[Any]) -> tuple[bytes | None, int]:
    """Return one bit for each value, lowest first, set where it is not null; and how many are null."""
    nulls = values.count(None)
    if nulls == 0:
        return None, 0
    size = (len(values) + 7) // 8
    if nulls == len(values):
        return bytes(size), nulls
    digits = "".join(["0" if value is None else "1" for value in reversed(values)])
    return int(digits, 2).to_bytes(size, "little"), nulls


def _filled(values: Sequence[Any], nulls: int, blank: Any) -> Sequence[Any]:
    return values if nulls == 0 else [blank if value is None else value for value in values]


def _metadata(pairs: dict[str, str]) -> bytes:
    words = [word.encode() for pair in pairs.items() for word in pair]
    return struct.pack("=i", len(pairs)) + b"".join(struct.pack("=i", len(word)) + word for word in words)


_NO_UUID = UUID(int=0)
_UUID = _metadata({"ARROW:extension:name": "arrow.uuid", "ARROW:extension:metadata": ""})


# -- the C structures ---------------------------------------------------------------------------------


class _Schema(Structure):
    pass


_Schema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_char_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(_Schema))),
    ("dictionary", c_void_p),
    ("release", c_void_p),
    ("private_data", c_void_p),
]


class _Array(Structure):
    pass


_Array._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(_Array))),
    ("dictionary", c_void_p),
    ("release", c_void_p),
    ("private_data", c_void_p),
]


class _Stream(Structure):
    _fields_ = [
        ("get_schema", c_void_p),
        ("get_next", c_void_p),
        ("get_last_error", c_void_p),
        ("release", c_void_p),
        ("private_data", c_void_p),
    ]


class ArrowTable:
    """Columns of equal length under names, readable as an Arrow stream any number of times.

    What a reader has taken and not released yet stays alive by itself, so the table may be dropped any time.
    """

    def __init__(self, columns: dict[str, Column]) -> None:
        lengths = {column.length for column in columns.values()}
        if len(lengths) != 1:
            raise ValueError("an Arrow table needs columns, all of the same length")
        self.length = lengths.pop()
        self._columns = columns  # keeps the buffers alive
        size = len(columns)
        names = [name.encode() for name in columns]
        self._schemas = (_Schema * size)(
            *(
                _Schema(
                    format=column.format,
                    name=name,
                    metadata=column.metadata,
                    flags=_NULLABLE,
                    release=_RELEASE_SCHEMA,
                )
                for name, column in zip(names, columns.values(), strict=True)
            )
        )
        self._buffers = [
            (c_void_p * len(column.buffers))(*map(_address, column.buffers)) for column in columns.values()
        ]
        self._arrays = (_Array * size)(
            *(
                _Array(
                    length=column.length,
                    null_count=column.nulls,
                    n_buffers=len(column.buffers),
                    buffers=buffers,
                    release=_RELEASE_ARRAY,
                )
                for column, buffers in zip(columns.values(), self._buffers, strict=True)
            )
        )
        self._schema_pointers = (POINTER(_Schema) * size)(*map(pointer, self._schemas))
        self._array_pointers = (POINTER(_Array) * size)(*map(pointer, self._arrays))
        self._no_buffer = (c_void_p * 1)(None)  # a struct has a validity buffer only, and ours needs none

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return a capsule with a stream of one record batch; the requested schema is only a wish."""
        reading = _Reading(self)
        capsule = _new_capsule(addressof(reading.stream), b"arrow_array_stream", _DROP_CAPSULE)
        _set_context(capsule, reading.key)
        return capsule

    def schema(self, key: int) -> _Schema:
        size = len(self._columns)
        return _Schema(
            format=b"+s",
            name=b"",
            n_children=size,
            children=self._schema_pointers,
            release=_RELEASE_SCHEMA,
            private_data=key,
        )

    def batch(self, key: int) -> _Array:
        return _Array(
            length=self.length,
            n_buffers=1,
            buffers=self._no_buffer,
            n_children=len(self._columns),
            children=self._array_pointers,
            release=_RELEASE_ARRAY,
            private_data=key,
        )


class _Reading:
    """One reader's way through a table."""

    def __init__(self, table: ArrowTable) -> None:
        self.table = table
        self.finished = False
        self.key = _hold(self)
        self.stream = _Stream(_GET_SCHEMA, _GET_NEXT, _GET_LAST_ERROR, _RELEASE_STREAM, self.key)


# What C code refers to by number, until it calls the release function.
_held: dict[int, object] = {}
_held_lock = threading.Lock()
_keys = count(1)


def _hold(thing: object) -> int:
    with _held_lock:
        key = next(_keys)
        _held[key] = thing
    return key


def held() -> int:
    """Return the number of objects that readers have not released yet (for tests)."""
    return len(_held)


# Called by the engine, in any of its threads.


def _get_schema(stream: Any, out: Any) -> int:
    reading: Any = _held[stream[0].private_data]
    schema = reading.table.schema(_hold(reading.table))
    memmove(out, addressof(schema), sizeof(schema))
    return 0


def _get_next(stream: Any, out: Any) -> int:
    reading: Any = _held[stream[0].private_data]
    if reading.finished:
        memset(out, 0, sizeof(_Array))
    else:
        reading.finished = True
        batch = reading.table.batch(_hold(reading.table))
        memmove(out, addressof(batch), sizeof(batch))
    return 0


def _get_last_error(stream: Any) -> None:  # noqa: ARG001
    return None


def _release_stream(stream: Any) -> None:
    _held.pop(stream[0].private_data, None)
    stream[0].release = None


def _release_schema(schema: Any) -> None:
    _held.pop(schema[0].private_data, None)
    schema[0].release = None


def _release_array(batch: Any) -> None:
    _held.pop(batch[0].private_data, None)
    batch[0].release = None


def _drop_capsule(capsule: int) -> None:
    """Release the stream of a deleted capsule, unless a reader has moved it out."""
    key = _get_context(capsule)
    reading: Any = _held.get(key)
    if reading is not None and reading.stream.release is not None:
        _held.pop(key, None)


_CALLBACKS = (  # alive as long as the module: an engine may release late
    CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Schema))(_get_schema),
    CFUNCTYPE(c_int, POINTER(_Stream), POINTER(_Array))(_get_next),
    CFUNCTYPE(c_char_p, POINTER(_Stream))(_get_last_error),
    CFUNCTYPE(None, POINTER(_Stream))(_release_stream),
    CFUNCTYPE(None, POINTER(_Schema))(_release_schema),
    CFUNCTYPE(None, POINTER(_Array))(_release_array),
    CFUNCTYPE(None, c_void_p)(_drop_capsule),
)
(
    _GET_SCHEMA,
    _GET_NEXT,
    _GET_LAST_ERROR,
    _RELEASE_STREAM,
    _RELEASE_SCHEMA,
    _RELEASE_ARRAY,
    _DROP_CAPSULE,
) = (cast(callback, c_void_p).value for callback in _CALLBACKS)

_new_capsule = pythonapi.PyCapsule_New
_new_capsule.restype = py_object
_new_capsule.argtypes = [c_void_p, c_char_p, c_void_p]
_set_context = pythonapi.PyCapsule_SetContext
_set_context.argtypes = [py_object, c_void_p]
_get_context = pythonapi.PyCapsule_GetContext
_get_context.restype = c_void_p
_get_context.argtypes = [c_void_p]  # not py_object: the capsule is dying and must not be held again


def _address(buffer: Buffer) -> int | None:
    if buffer is None:
        return None
    if isinstance(buffer, bytes):
        return cast(c_char_p(buffer), c_void_p).value
    return buffer.buffer_info()[0]
