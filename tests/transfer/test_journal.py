from __future__ import annotations

from pathlib import Path

import pytest

from hoglab.transfer.journal import ImportProgress, Journal, JournalError


def test_the_last_word_counts_and_a_torn_line_does_not(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        assert journal.progress("f", "t") == ImportProgress(0, 0)
        journal.record("f", "t", ImportProgress(5, 1))
        journal.record("f", "t", ImportProgress(9, 2))
        journal.record("f", "other", ImportProgress(3))
    with path.open("ab") as file:
        file.write(b'{"file":"f","target":"t","progr')
    with Journal(path) as journal:
        assert journal.progress("f", "t") == ImportProgress(9, 2)
        assert journal.progress("f", "other") == ImportProgress(3)
        journal.record("f", "t", ImportProgress(11, 2))
    with Journal(path) as journal:
        assert journal.progress("f", "t") == ImportProgress(11, 2)


def test_one_import_at_a_time(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"), pytest.raises(JournalError, match="another import"):
        Journal(tmp_path / "j")
    with pytest.raises(JournalError, match="cannot be used"):
        Journal(tmp_path / "missing" / "j")
