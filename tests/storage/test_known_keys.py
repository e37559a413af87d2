"""The memory of stored events: nothing is forgotten, whatever happens to its files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.generated import examples
from tests.storage.event_rows import event_row

from hoglab.storage.event_store import EventBatch
from hoglab.storage.event_store.duckdb import DuckDbEventStore
from hoglab.storage.event_store.once.known_keys import KnownKeys, keys_of

if TYPE_CHECKING:
    from hoglab.storage.event_store.once.known_keys import Keys


def nothing_to_read(first: int, last: int) -> Iterator[Keys]:
    raise AssertionError(f"{first} to {last} should be known")


def probes_of(keys: Keys) -> Callable[[int, int], Iterator[tuple[int, Keys]]]:
    """Reading of single events, by which a file is known to be theirs; more should not be read."""

    def read(first: int, last: int) -> Iterator[tuple[int, Keys]]:
        assert first == last, f"{first} to {last} should be known"
        yield last, keys[first - 1 : last]

    return read


def made(count: int, project_id: int = 1) -> Keys:
    return keys_of([project_id] * count, [uuid4() for _ in range(count)])


def found(known: KnownKeys, keys: Keys) -> set[int]:
    return {position for each in known.find(keys) for position in each.positions}


def test_digests_differ_where_identities_do() -> None:
    uuids = [UUID(int=number) for number in range(20_000)] + [UUID(int=n << 64) for n in range(1, 20_000)]
    keys = np.concatenate([keys_of([project] * len(uuids), uuids) for project in (1, 2, 3)])
    assert len(np.unique(keys)) == len(keys)
    counts = np.bincount((keys >> np.uint64(56)).astype(int), minlength=256)
    assert counts.max() < 2 * counts.mean()


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30))
def test_what_was_added_is_found_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("keys") / "k"
    known = KnownKeys(folder, max_run_keys=200, min_file_keys=50)
    known.load(1, nothing_to_read)
    every: list[Keys] = []
    at = 1
    for size in sizes:
        keys = made(size)
        known.add(keys, at)
        every.append(keys)
        at += size
    joined = np.concatenate(every)
    assert found(known, joined) == set(range(len(joined)))
    assert found(known, made(100)) == set()
    ranges = known.runs
    assert [first for first, _ in ranges] == [1, *(last + 1 for _, last in ranges[:-1])]
    assert len(ranges) <= len(joined) / 100 + 8
    known.close()
    again = KnownKeys(folder, max_run_keys=200, min_file_keys=50)
    again.load(at, probes_of(joined))
    assert found(again, joined) == set(range(len(joined)))


def test_the_range_says_where_to_look(tmp_path: Path) -> None:
    known = KnownKeys(tmp_path / "k", max_run_keys=10, min_file_keys=1)
    known.load(1, nothing_to_read)
    keys = made(30)
    for start in range(0, 30, 10):
        known.add(keys[start : start + 10], start + 1)
    [one] = known.find(keys[14:15])
    assert (one.first, one.last, one.positions) == (11, 20, [0])


def damaged(folder: Path, damage: str) -> None:
    files = sorted(folder.glob("*.keys"))
    assert files
    if damage == "gone":
        files[0].unlink()
    elif damage == "short":
        files[-1].write_bytes(files[-1].read_bytes()[:-8])
    elif damage == "flipped":
        for file in files:
            data = bytearray(file.read_bytes())
            for place in range(5, len(data), 24):
                data[place] ^= 0x40
            file.write_bytes(data)
    elif damage == "of others":
        for file in files:
            other = KnownKeys(folder.with_name("other"), min_file_keys=1)
            other.load(1, nothing_to_read)
            other.add(made((file.stat().st_size - 16) // 8), 1)
            shutil.copyfile(next(folder.with_name("other").iterdir()), file)
            shutil.rmtree(folder.with_name("other"))
    elif damage == "all gone":
        for file in files:
            file.unlink()
        folder.rmdir()
    else:
        (folder / "1-9000000.draft").write_bytes(b"x")
        (folder / "1-999999999.keys").write_bytes(b"x" * 80)


@pytest.mark.parametrize("damage", ["none", "gone", "short", "flipped", "of others", "all gone", "strangers"])
def test_a_store_knows_its_events_whatever_happened_to_the_keys(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "events.duckdb"
    rows = [event_row(offset) for offset in range(1, 41)]
    store = DuckDbEventStore(path)
    for start in range(0, 40, 10):
        store.append(EventBatch(rows[start : start + 10]), log_offset=start + 10)
    store.close()
    if damage != "none":
        damaged(path.with_name("events.duckdb.keys"), damage)
    store = DuckDbEventStore(path)
    resent = [event_row(50, uuid=row.uuid) for row in rows]
    fresh = event_row(50)
    assert list(store.append(EventBatch([*resent, fresh]), log_offset=50)) == [len(resent)]
    store.close()
    assert not list(tmp_path.glob("*.keys/*.draft"))


def test_keys_of_a_store_that_was_replaced_are_forgotten(tmp_path: Path) -> None:
    store = DuckDbEventStore(tmp_path / "events.duckdb")
    row = event_row(1)
    store.append(EventBatch([row]), log_offset=1)
    store.close()
    (tmp_path / "events.duckdb").unlink()
    store = DuckDbEventStore(tmp_path / "events.duckdb")
    assert list(store.append(EventBatch([row]), log_offset=1)) == [0]
    store.close()


def test_a_disk_that_takes_no_keys_loses_no_event(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    known = KnownKeys(folder, min_file_keys=1)
    known.load(1, nothing_to_read)
    folder.rmdir()
    keys = made(5)
    known.add(keys, 1)
    known.add(made(3), 6)
    assert found(known, keys) == {0, 1, 2, 3, 4}
