"""Keys of all events that were ever stored, at eight bytes an event.

SDKs send an event again, with its uuid, until they hear that it arrived: after seconds, or after days on a
phone without network. Random uuids defeat the engine's zone maps, and its indexes live in memory. So beside
the events there are sorted files of 64-bit digests of (project, uuid), each for a range of ``seq``, mapped into
memory on demand. A batch is looked up in all of them by binary search; only what is found there is compared
with the events themselves, so a collision of digests costs a query, never an event.

Files are merged as they grow (each is at most a third of the one before it), up to `MAX_RUN_KEYS`. They can be
lost, outdated, damaged (each ends with a checksum) or of other events (some event of a file's range has to be in it):
what sound files do not cover is read from the events again.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import structlog

from hoglab.patterns import anchored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from uuid import UUID

    import numpy.typing as npt

    from hoglab.storage.event_store import EventRow

    Keys = npt.NDArray[np.uint64]
    Positions = npt.NDArray[np.intp]

MAX_RUN_KEYS = 1 << 22
"""Files of this many keys (32 MiB) are merged no further: a merge holds up the writer and needs memory."""
MIN_FILE_KEYS = 1 << 16
"""Fewer keys stay in memory; after a crash they are read from the events."""

CHECKSUM_BYTES = 16
PROBES = 8
"""Places of a file's range at which an event is looked for: some of them may have been deleted."""

_GROWTH = 3
_NAME = anchored(r"(\d{1,19})-(\d{1,19})(?:-(\d{1,19}))?\.keys")
_FACTORS = tuple(map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)))
_SHIFT = np.uint64(29)

_log = structlog.get_logger(__name__)


def keys_of(project_ids: Sequence[int], uuids: Sequence[UUID]) -> Keys:
    """Return digests of (project, uuid): evenly spread for uuids of any version."""
    raw = b"".join([uuid.int.to_bytes(16, "big") for uuid in uuids])
    halves = np.frombuffer(raw, ">u8").astype(np.uint64).reshape(-1, 2)
    return keys_of_halves(np.array(project_ids, np.int64), halves[:, 0], halves[:, 1])


def keys_of_rows(rows: Sequence[EventRow]) -> Keys:
    """Return the keys of events."""
    return keys_of([row.project_id for row in rows], [row.uuid for row in rows])


def has_repetitions(keys: Keys) -> bool:
    """Return whether two of the keys are the same."""
    return len(np.unique(keys)) < len(keys)


def keys_of_halves(project_ids: npt.NDArray[Any], high: Keys, low: Keys) -> Keys:
    """Return the keys of uuids that are given as two numbers each."""
    projects = project_ids.astype(np.uint64)
    mixed: Keys = (high ^ projects * _FACTORS[0]) * _FACTORS[1]
    mixed = (mixed ^ mixed >> _SHIFT ^ low) * _FACTORS[2]
    return mixed ^ mixed >> _SHIFT


@dataclass(frozen=True, slots=True)
class Run:
    """The sorted keys of the events from ``first`` to ``last``; in a file, or in memory alone.

    They may be fewer than the range is long: some events were deleted before their keys were read."""

    first: int
    last: int
    keys: Keys
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Suspects:
    """Positions in a batch whose keys are those of events between ``first`` and ``last``."""

    first: int
    last: int
    positions: list[int]


class KnownKeys:
    """The keys of one event store. Used by its writer alone."""

    def __init__(self, folder: Path, *, max_run_keys: int = MAX_RUN_KEYS, min_file_keys: int = MIN_FILE_KEYS):
        self._folder = folder
        self._max_run_keys = max_run_keys
        self._min_file_keys = min_file_keys
        self._runs: list[Run] = []

    def load(self, next_seq: int, read: Callable[[int, int], Iterator[tuple[int, Keys]]]) -> None:
        """Open the files that belong to events below ``next_seq``, and ``read`` (first, last) what they lack.

        Keys of a part of the range, and up to where it goes.
        """
        self._folder.mkdir(exist_ok=True)
        self._runs = []
        at = 1
        for first, last, path in self._files(next_seq):
            if last < at:  # merged into another before a crash
                path.unlink(missing_ok=True)
            elif first >= at and (keys := _sound(path, first, last, read)) is not None:
                self._fill(at, first - 1, read)
                self._runs.append(Run(first, last, keys, path))
                at = last + 1
        self._fill(at, next_seq - 1, read)

    def _files(self, next_seq: int) -> list[tuple[int, int, Path]]:
        files = []
        for path in self._folder.iterdir():
            match = _NAME.fullmatch(path.name)
            first, last = (int(match[1]), int(match[2])) if match else (1, 0)
            count = int(match[3]) if match and match[3] else last - first + 1
            if first <= last < next_seq and path.stat().st_size == count * 8 + CHECKSUM_BYTES:
                files.append((first, last, path))
            else:  # half-written, or of events that are gone
                path.unlink(missing_ok=True)
        return sorted(files, key=lambda file: (file[0], -file[1]))

    def _fill(self, first: int, last: int, read: Callable[[int, int], Iterator[tuple[int, Keys]]]) -> None:
        if first <= last:
            for end, keys in read(first, last):
                self.add(keys, first, end)
                first = end + 1

    def find(self, keys: Keys) -> list[Suspects]:
        """Return keys that are known among some, by the range of events that they may be."""
        if not len(keys):
            return []
        order = np.argsort(keys)
        wanted = keys[order]  # in order, neighbours are found in the same pages of a file
        suspects = []
        for run in self._runs:
            places = np.searchsorted(run.keys, wanted)
            places[places == len(run.keys)] = 0
            hits: Positions = order[run.keys[places] == wanted]
            if len(hits):
                suspects.append(Suspects(run.first, run.last, hits.tolist()))
        return suspects

    def add(self, keys: Keys, first: int, last: int | None = None) -> None:
        """Remember the keys of events that are stored for good, from ``first`` to ``last``.

        None: there is one of each in between.
        """
        if not len(keys):
            return
        run = Run(first, first + len(keys) - 1 if last is None else last, np.sort(keys))
        replaced: list[Run] = []
        while self._runs and self._worth_merging(self._runs[-1], run):
            before = self._runs.pop()
            replaced.append(before)
            # Both parts are sorted, which this way of sorting makes use of.
            merged = np.sort(np.concatenate((before.keys, run.keys)), kind="stable")
            run = Run(before.first, run.last, merged)
        self._runs.append(self._written(run) if len(run.keys) >= self._min_file_keys else run)
        if self._runs[-1].path is not None:
            for segment in replaced:
                if segment.path is not None:
                    segment.path.unlink(missing_ok=True)

    def _worth_merging(self, before: Run, run: Run) -> bool:
        size = len(before.keys)
        return size < len(run.keys) * _GROWTH and size + len(run.keys) <= self._max_run_keys

    def _written(self, run: Run) -> Run:
        """Return the run in a file; as it is when the disk takes no more, for the events are stored in any case."""
        some = "" if len(run.keys) == run.last - run.first + 1 else f"-{len(run.keys)}"
        path = self._folder / f"{run.first}-{run.last}{some}.keys"
        draft = path.with_suffix(".draft")
        try:
            with draft.open("wb") as file:
                file.write(run.keys.data)
                file.write(_checksum(run.keys.data))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            return Run(run.first, run.last, _mapped(path), path)
        except OSError as error:
            _log.warning("event_keys_not_written", path=str(path), reason=str(error))
            return run

    def close(self) -> None:
        """Write down what is in memory alone, so that the next start need not read events."""
        for run in self._runs:
            if run.path is None:
                self._written(run)
        self._runs = []

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The ranges of events that the runs cover, oldest first."""
        return [(run.first, run.last) for run in self._runs]


def _mapped(path: Path) -> Keys:
    with path.open("rb") as file:
        mapping: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapping, np.uint64, (len(mapping) - CHECKSUM_BYTES) // 8)


def _sound(
    path: Path, first: int, last: int, read: Callable[[int, int], Iterator[tuple[int, Keys]]]
) -> Keys | None:
    """Return the keys in a file; None, and it is deleted, when they are not those of the events of its range."""
    keys = _mapped(path)
    with path.open("rb") as file:
        file.seek(-CHECKSUM_BYTES, os.SEEK_END)
        is_whole = file.read() == _checksum(keys.data)
    if is_whole:
        places = [first + (last - first) * number // (PROBES - 1) for number in range(PROBES)]
        known = (key for seq in reversed(places) for _, stored in read(seq, seq) for key in stored)
        key = next(known, None)
        place = None if key is None else np.searchsorted(keys, key)
        if place is not None and place < len(keys) and keys[place] == key:
            return keys
    reason = (
        "damaged" if not is_whole else "of other events" if key is not None else "of events that are gone"
    )
    _log.warning("event_keys_rebuilt", path=str(path), reason=reason)
    with suppress(OSError):
        path.unlink(missing_ok=True)
    return None


def _checksum(keys: memoryview) -> bytes:
    return blake2b(keys, digest_size=CHECKSUM_BYTES).digest()
