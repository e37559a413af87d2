"""How much of the log waits for consumers, and how much is done and may go: kept in memory, in segments."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class _Segment:
    last_offset: int
    size: int
    newest_at: int  # microseconds since the epoch


class Backlog:
    """Counts bytes of pending and of finished records, to the nearest segment of ``segment_bytes``.

    Neighbouring records share a segment, so the memory used does not depend on how many there are. A
    segment is finished when its last record is.
    """

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._pending: deque[_Segment] = deque()
        self._finished: deque[_Segment] = deque()
        self.pending_bytes = 0
        self.finished_bytes = 0

    def add(self, last_offset: int, size: int, newest_at: int) -> None:
        """Records of that size in total, the last one with this offset, were appended."""
        newest = self._pending[-1] if self._pending else None
        if newest is not None and newest.size + size <= self._segment_bytes:
            newest.last_offset = last_offset
            newest.size += size
            newest.newest_at = newest_at
        else:
            self._pending.append(_Segment(last_offset, size, newest_at))
        self.pending_bytes += size

    def finish(self, up_to: int) -> None:
        """Every consumer is done with the records up to and including this offset."""
        while self._pending and self._pending[0].last_offset <= up_to:
            segment = self._pending.popleft()
            self._finished.append(segment)
            self.pending_bytes -= segment.size
            self.finished_bytes += segment.size

    def droppable(self, *, older_than: int, keep_bytes: int) -> int:
        """Offset up to which finished records are too old, or more than may be kept; 0 for none."""
        offset, left = 0, self.finished_bytes
        for segment in self._finished:
            if segment.newest_at >= older_than and left <= keep_bytes:
                break
            offset = segment.last_offset
            left -= segment.size
        return offset

    def drop(self, up_to: int) -> None:
        """Records up to and including this offset were deleted."""
        self.finish(up_to)
        while self._finished and self._finished[0].last_offset <= up_to:
            self.finished_bytes -= self._finished.popleft().size
