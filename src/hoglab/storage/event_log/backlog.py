"""Backlog of the log, what waits for consumers, and how much is done and may go: kept in memory, in segments."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Segment:
    last_offset: int
    size: int
    newest_at: int  # microseconds since the epoch
    by_owner: Counter[int] = field(default_factory=Counter)  # bytes, of records whose owner is known


class Backlog:
    """Counts bytes of pending and of finished records, to the nearest segment of ``segment_bytes``.

    Neighbouring records share a segment, so the memory used does not depend on how many there are. A
    segment is finished when its last record is.
    """

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._pending: deque[_Segment] = deque()
        self._finished: deque[_Segment] = deque()
        self._by_owner: Counter[int] = Counter()
        self.pending_bytes = 0
        self.finished_bytes = 0

    def pending_of(self, owner: int) -> int:
        """Return bytes of an owner's records that are pending, of those that told their owner when they were added."""
        return self._by_owner[owner]

    def add(self, last_offset: int, size: int, newest_at: int, owner: int | None = None) -> None:
        """Count appended records: ``size`` bytes in total, the last one at ``last_offset``."""
        newest = self._pending[-1] if self._pending else None
        if newest is not None and newest.size + size <= self._segment_bytes:
            newest.last_offset = last_offset
            newest.size += size
            newest.newest_at = newest_at
        else:
            newest = _Segment(last_offset, size, newest_at)
            self._pending.append(newest)
        if owner is not None:
            newest.by_owner[owner] += size
            self._by_owner[owner] += size
        self.pending_bytes += size

    def finish(self, up_to: int) -> None:
        """Note that every consumer is done with the records up to and including this offset."""
        while self._pending and self._pending[0].last_offset <= up_to:
            segment = self._pending.popleft()
            for owner, size in segment.by_owner.items():
                self._by_owner[owner] -= size
                if not self._by_owner[owner]:
                    del self._by_owner[owner]
            segment.by_owner.clear()
            self._finished.append(segment)
            self.pending_bytes -= segment.size
            self.finished_bytes += segment.size

    def droppable(self, *, older_than: int, keep_bytes: int) -> int:
        """Return offset up to which finished records are too old, or more than may be kept; 0 for none."""
        offset, left = 0, self.finished_bytes
        for segment in self._finished:
            if segment.newest_at >= older_than and left <= keep_bytes:
                break
            offset = segment.last_offset
            left -= segment.size
        return offset

    def drop(self, up_to: int) -> None:
        """Subtract the records up to and including this offset, which were deleted."""
        self.finish(up_to)
        while self._finished and self._finished[0].last_offset <= up_to:
            self.finished_bytes -= self._finished.popleft().size
