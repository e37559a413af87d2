"""Commits that a damaged write-ahead log of SQLite still holds, and that SQLite would drop without a word.

SQLite reads its log up to the first frame that is not whole, and takes the rest for what was never finished. That is so
after a power cut; but where a whole commit of the same log stands behind such a frame, it was finished, and was lost
to damage. The index in shared memory, which outlives a process that is killed, tells of commits at a cut off end.
Format: https://www.sqlite.org/fileformat2.html, section 4, and https://www.sqlite.org/walformat.html.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    Words = npt.NDArray[np.uint32]

HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
FRAMES_AT_ONCE = 1_024

_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF


def lost_commits(path: Path) -> str | None:
    """Return loss of the latest commits to a database file that nobody has open; None when none is known.

    Changes nothing. To be asked before the file is opened, which forgets what the log held.
    """
    log = path.with_name(f"{path.name}-wal")
    frames = _frames(path)
    index = _indexed(path.with_name(f"{path.name}-shm"))
    if index is not None and (not frames.salts or index.salts == frames.salts):
        if index.commits > max(frames.whole, index.in_file):
            return f"{log.name} is damaged or cut off: {frames.whole} of {index.commits} pages of changes are left."
        if index.in_file >= frames.commits:
            return None
    if frames.commits > frames.whole:
        return f"{log.name} is damaged: {frames.whole} of {frames.commits} pages of changes can be read."
    return None


class _LogFrames(NamedTuple):
    """Frames of a log.

    ``whole``: the frames up to the last commit that SQLite reads; ``commits``: up to the last one that there is.
    """

    salts: bytes
    whole: int
    commits: int


class _Index(NamedTuple):
    """Index of a log. ``in_file``: frames that were written into the database file."""

    salts: bytes
    commits: int
    in_file: int


def _frames(path: Path) -> _LogFrames:
    log = path.with_name(f"{path.name}-wal")
    try:
        file = log.open("rb")
    except FileNotFoundError:
        return _LogFrames(b"", 0, 0)
    with file:
        header = file.read(HEADER_BYTES)
        if len(header) < HEADER_BYTES:
            return _LogFrames(b"", 0, 0)
        magic, _, page_bytes, _ = struct.unpack(">4I", header[:16])
        order = ">" if magic & 1 else "<"
        state = _next_state((0, 0), _sums(np.frombuffer(header[:24], f"{order}u4")[None])[0], 3)
        is_whole = magic & ~1 == _MAGIC and state == struct.unpack(">2I", header[24:])
        salts = header[16:24]
        if not is_whole:  # SQLite takes the log for empty; frames of one log have the same salts
            page_bytes = _page_bytes(path)
            salts = file.read(FRAME_HEADER_BYTES)[8:16]
            file.seek(HEADER_BYTES)
        frame_bytes = FRAME_HEADER_BYTES + page_bytes
        pairs = (8 + page_bytes) // 8
        number = whole = commits = 0
        while len(data := file.read(frame_bytes * FRAMES_AT_ONCE)) >= frame_bytes:
            count = len(data) // frame_bytes
            frames = np.frombuffer(data, np.uint8, count * frame_bytes).reshape(count, frame_bytes)
            covered = np.hstack((frames[:, :8], frames[:, FRAME_HEADER_BYTES:])).view(f"{order}u4")
            for frame, part in zip(frames, _sums(covered), strict=True):
                number += 1
                fields = frame[:FRAME_HEADER_BYTES].tobytes()
                if is_whole:
                    state = _next_state(state, part, pairs)
                    is_whole = fields[8:16] == salts and state == struct.unpack(">2I", fields[16:])
                if fields[8:16] == salts and fields[4:8] != bytes(4):  # the last frame of a commit
                    commits = number
                    whole = number if is_whole else whole
    return _LogFrames(salts, whole, commits)


def _page_bytes(path: Path) -> int:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:], "big")
    return 65_536 if size == 1 else max(size, 512)


def _indexed(index: Path) -> _Index | None:
    """Return what the index of the log says; None when it says nothing.

    The index is not written to disk before anything else, so it may be of another time.
    """
    try:
        header = index.read_bytes()[:136]
    except FileNotFoundError:
        return None
    if len(header) < 136 or header[:48] != header[48:96] or not header[12]:
        return None
    (commits,), (in_file,) = struct.unpack_from("=I", header, 16), struct.unpack_from("=I", header, 96)
    return _Index(header[32:40], commits, in_file)


# The checksum adds words in pairs: (s, t) becomes (s + t + x, s + 2t + x + y), modulo 2³². That is linear, so that what
# the words of a frame add to it is a product with weights.


def _next_state(state: tuple[int, int], part: npt.NDArray[np.uint64], pairs: int) -> tuple[int, int]:
    (a, b), (c, d) = _power(pairs)
    first, second = (int(total) for total in part)
    return (a * state[0] + b * state[1] + first) & _MASK, (c * state[0] + d * state[1] + second) & _MASK


def _sums(words: Words) -> npt.NDArray[np.uint64]:
    """Return checksums of the rows of words, starting from (0, 0)."""
    sums: npt.NDArray[np.uint64] = words.astype(np.uint64) @ _weights(words.shape[1] // 2) & np.uint64(_MASK)
    return sums


@cache
def _power(exponent: int) -> tuple[tuple[int, int], tuple[int, int]]:
    (a, b), (c, d) = (1, 0), (0, 1)
    for _ in range(exponent):
        (a, b), (c, d) = (a + b & _MASK, a + 2 * b & _MASK), (c + d & _MASK, c + 2 * d & _MASK)
    return (a, b), (c, d)


@cache
def _weights(pairs: int) -> npt.NDArray[np.uint64]:
    weights = np.zeros((2 * pairs, 2), np.uint64)
    (a, b), (c, d) = (1, 0), (0, 1)
    for pair in reversed(range(pairs)):
        weights[2 * pair] = (a + b & _MASK, c + d & _MASK)
        weights[2 * pair + 1] = (b, d)
        (a, b), (c, d) = (a + b & _MASK, a + 2 * b & _MASK), (c + d & _MASK, c + 2 * d & _MASK)
    return weights
