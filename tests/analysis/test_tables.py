"""Metrics from tables beside the events, against the slow oracle and in what they refuse."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.analysis.engines import Engine
from tests.analysis.events import Event
from tests.analysis.oracle import Setting
from tests.analysis.test_against_oracle import (
    EXPOSURE,
    PURCHASE,
    START,
    WINDOWS,
    Bench,
    a_log,
    a_setting,
    check_every_day,
    funnel,
    in_window,
    mean,
    moments,
    quantile,
    retention,
    seeds,
    sizes,
)

from hoglab.analysis.errors import DefinitionError, ResultsError
from hoglab.analysis.query.model import FunnelMeasure, MeanMeasure
from hoglab.storage.table_files import FileFormat, FileTable, TableDirectory

ODD = "a \"b\" 'c' `d` \\ {e} ключ"
"""The name of a column."""
KEYS = ["a1", "a2", "it's", "7", "ключ", "", None]
TIMES = ("at", "paid")
KINDS = ["big", "small", "o'clock", None]
SCHEMA = pa.schema(
    {
        "account": pa.string(),
        "person": pa.string(),
        "at": pa.timestamp("us"),
        "paid": pa.timestamp("us"),
        "amount": pa.float64(),
        "quantity": pa.int64(),
        "kind": pa.string(),
        ODD: pa.int32(),
    }
)


def orders(math_: str = "total", prop: str | None = None, **fields: Any) -> dict[str, Any]:
    """Rows of the table as a source."""
    return {
        "kind": "ExperimentDataWarehouseNode",
        "table_name": "orders",
        "timestamp_field": "at",
        "events_join_key": "properties.account",
        "data_warehouse_join_key": "account",
        "math": math_,
        "math_property": prop,
        **fields,
    }


def only(key: str, value: Any) -> dict[str, Any]:
    return {"properties": [{"key": key, "value": value, "operator": "exact", "type": "data_warehouse"}]}


def formula(text: str) -> dict[str, Any]:
    return orders("hogql", math_hogql=text)


BIG, SMALL = only("kind", "big"), only("kind", "small")
BY_PERSON = {"events_join_key": "distinct_id", "data_warehouse_join_key": "person"}
METRICS = [
    mean(source=orders()),
    mean(source=orders("dau")),
    mean(source=orders(**only("kind", "o'clock"))),
    *(mean(source=orders(name, "amount")) for name in ("sum", "avg", "min", "max")),
    mean(source=orders("sum", "quantity", **BY_PERSON)),
    mean(source=orders("sum", ODD, **only(ODD, 3))),
    mean(source=orders("sum")),
    *(
        mean(source=formula(text))
        for text in (
            *("sum(toFloat(amount) * 2)", "max(if(kind = 'big', amount, 1))", "count(distinct kind)"),
            *("sumIf(amount, kind = 'big')", "quantile(0.3)(amount)", "avgIf(amount, kind = 'big')"),
            *("minIf(amount, kind = 'big')", "uniqIf(kind, amount > 1)"),
        )
    ),
    mean(source=orders("sum", "amount"), lower_bound_percentile=0.2, upper_bound_percentile=0.7),
    mean(source=orders(), threshold=2),
    {"metric_type": "ratio", "numerator": orders("sum", "amount"), "denominator": orders(**BY_PERSON)},
    {"metric_type": "ratio", "numerator": PURCHASE, "denominator": orders("max", "quantity")},
    quantile(0.5, source=orders("sum", "amount")),
    quantile(0.75, source=orders("sum", "quantity"), quantile_unit="event"),
    funnel(orders()),
    funnel(PURCHASE, orders()),
    funnel(orders(**only("kind", "big")), orders()),
    funnel(EXPOSURE, orders(), PURCHASE),
    funnel(orders(**BY_PERSON), PURCHASE),
    *(funnel(PURCHASE, orders(), funnel_order_type=order) for order in ("unordered", "strict")),
    *(
        retention(0, 1, "day", start_event=orders(), completion_event=orders(), start_handling=how)
        for how in ("first_seen", "last_seen")
    ),
    retention(0, 0, "hour", start_event=orders(**BIG), completion_event=orders(**SMALL)),
    retention(0, 0, "hour", start_event=orders(**BIG), completion_event=orders()),
    retention(0, 3, "hour", start_event=orders(), completion_event=orders(**BIG), start_handling="last_seen"),
    retention(0, 30, "hour", start_event=orders(), completion_event=orders(timestamp_field="paid")),
    retention(0, 2, "day", start_event=orders(**BIG)),
    retention(0, 2, "day", completion_event=orders(**BY_PERSON)),
    retention(
        0, 1, "month", start_event=orders(), completion_event=orders(**BY_PERSON, timestamp_field="paid")
    ),
    retention(0, 1, "week", completion_event=orders(), start_handling="last_seen"),
]
FORMATS = st.sampled_from(list(FileFormat))


def a_table(seed: int, size: int) -> list[dict[str, Any]]:
    random = Random(seed)
    when = moments(random)
    rows = []
    for _ in range(size):
        at = random.choice(
            [*when, *when, START + timedelta(seconds=random.randrange(-60 * 3600, 160 * 3600))]
        )
        rows.append(
            {
                "account": random.choice(KEYS),
                "person": random.choice(["ann", "bob", "cy", "zoe"]),
                "at": random.choice([at] * 9 + [None]),
                "paid": random.choice([at, at + timedelta(hours=random.choice([0, 1, 24])), None]),
                "amount": random.choice([3.0, 0.0, -2.5, 1000.0, 1e300, None]),
                "quantity": random.choice([1, 2, 5, None]),
                "kind": random.choice(KINDS),
                ODD: random.choice([3, 4, None]),
            }
        )
    return rows


def with_accounts(seed: int, events: list[Event]) -> list[Event]:
    random = Random(seed)
    keys = [*KEYS, 7]
    return [
        replace(event, properties={**event.properties, "account": random.choice(keys)}) for event in events
    ]


def written(
    directory: TableDirectory, name: str, rows: list[dict[str, Any]], format_: FileFormat
) -> FileTable:
    """The rows in two files, registered under the name ``orders``."""
    folder = directory.path / name
    folder.mkdir()
    half = len(rows) // 2
    for part, some in enumerate((rows[:half], rows[half:])):
        naive = [
            {**row, **{each: row[each] and row[each].replace(tzinfo=None) for each in TIMES}} for row in some
        ]
        write(folder / str(part), pa.Table.from_pylist(naive, SCHEMA), format_)
    pattern = f"{name}/*"
    known = dict(directory.columns(pattern, format_))
    assert list(known) == SCHEMA.names
    if format_ is FileFormat.CSV:  # of few rows the engine cannot tell what the columns hold
        known = {name: TYPES[kind] for name, kind in zip(SCHEMA.names, SCHEMA.types, strict=True)}
    return FileTable("orders", format_, pattern, tuple(known.items()))


TYPES: dict[pa.DataType, Any] = {
    pa.string(): "string",
    pa.float64(): "float",
    pa.int64(): "integer",
    pa.int32(): "integer",
    pa.timestamp("us"): "datetime",
}


def write(path: Path, table: pa.Table, format_: FileFormat) -> None:
    if format_ is FileFormat.PARQUET:
        pyarrow.parquet.write_table(table, path)
    else:
        options = pyarrow.csv.WriteOptions(quoting_style="needed")
        pyarrow.csv.write_csv(table, path, options)


@pytest.fixture(scope="module")
def bench(engine: Engine) -> Bench:
    return Bench(engine)


@pytest.mark.timeout(900)  # many examples, on machines that may be busy
def test_every_metric_on_every_day(bench: Bench) -> None:
    @settings(max_examples=bench.engine.examples * 2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        metric=st.sampled_from(METRICS),
        seed=seeds,
        size=sizes,
        setting=a_setting(),
        window=st.sampled_from(WINDOWS),
        day=st.integers(0, 4),
        format_=FORMATS,
    )
    def example(
        metric: dict[str, Any],
        seed: int,
        size: int,
        setting: Setting,
        window: tuple[int | None, str | None],
        day: int,
        format_: FileFormat,
    ) -> None:
        rows = a_table(seed, size)
        table = written(bench.engine.tables, f"orders_{bench.project}", rows, format_)
        setting.tables = {"orders": rows}
        events = with_accounts(seed, a_log(seed, size))
        check_every_day(bench, {**metric, **in_window(window)}, events, setting, day, {"orders": table}.get)

    example()


# -- what is refused, and what happens when files change ----------------------------------------------------------

SETTING = Setting(START, START + timedelta(days=2), START + timedelta(days=2))
ROWS = [
    {
        "account": key,
        "person": "ann",
        "at": START + timedelta(hours=1),
        "paid": None,
        "amount": 2.0,
        "quantity": 1,
        "kind": "big",
        ODD: 3,
    }
    for key in ("a1", "a2")
]
EXPOSED = [
    Event(
        name,
        START,
        "$feature_flag_called",
        {"$feature_flag": "flag", "$feature_flag_response": variant, "account": key},
        UUID(int=place),
    )
    for place, (name, variant, key) in enumerate([("ann", "control", "a1"), ("bob", "test", "a2")], 1)
]


def asked(bench: Bench, metric: dict[str, Any], table: FileTable) -> Any:
    question = bench.ask(SETTING, EXPOSED, metric, {"orders": table}.get)
    return bench.computer.result(question).groups


@pytest.fixture
def table(bench: Bench, request: pytest.FixtureRequest) -> FileTable:
    name = re.sub(r"\W", "_", request.node.name)
    return written(bench.engine.tables, name, ROWS, FileFormat.PARQUET)


@pytest.mark.parametrize(
    ("metric", "reason"),
    [
        (
            mean(source=orders(table_name="others")),
            "source: the project has no data warehouse table 'others'.",
        ),
        (mean(source=orders(timestamp_field="when")), "the table orders has no column when"),
        (
            mean(source=orders(timestamp_field="kind")),
            "timestamp_field: the column kind of the table orders is string, not a time",
        ),
        (mean(source=orders(data_warehouse_join_key="nobody")), "the table orders has no column nobody"),
        (mean(source=orders(data_warehouse_join_key="")), "source.data_warehouse_join_key cannot be read"),
        (mean(source=orders(events_join_key="account")), "account cannot be used in metrics"),
        (
            mean(source=orders("sum", "kind")),
            "math_property: the column kind of the table orders is string, not a number",
        ),
        (mean(source=orders("sum", "at")), "math_property: the column at of the table orders is datetime"),
        (mean(source=orders("avg", "none + 1")), "the table orders has no column none"),
        (mean(source=orders("unique_session")), "math: unique_session cannot be counted in rows of a table"),
        (mean(source=orders(**only("nothing", 1))), "the table orders has no column nothing"),
        (
            mean(source=orders(properties=[{"key": "kind", "value": 1, "type": "person"}])),
            "filters of type person cannot be used with tables",
        ),
        (
            mean(source=orders(properties=[{"key": "id", "value": 1, "type": "cohort"}])),
            "cohorts cannot be used here",
        ),
        (
            funnel(orders(), orders(**BY_PERSON)),
            "All data warehouse steps of a funnel must have the same events_join_key.",
        ),
        (
            retention(0, 1, "day", start_event=orders(), completion_event=orders(**BY_PERSON)),
            "must be joined by the same keys when they are rows of one table.",
        ),
        (
            retention(0, 1, "day", completion_event=orders(timestamp_field="when")),
            "orders has no column when",
        ),
        (retention(0, 1, "day", start_event=orders(**only("nothing", 1))), "orders has no column nothing"),
    ],
)
def test_what_a_table_cannot_answer_is_refused(
    bench: Bench, table: FileTable, metric: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        asked(bench, metric, table)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        *(
            ("quantity", "1", True),
            ("quantity", 1, True),
            ("quantity", "1.0", True),
            ("quantity", "01", True),
        ),
        *(
            ("quantity", "2", False),
            ("quantity", "one", False),
            ("amount", "2e0", True),
            ("amount", 2.5, False),
        ),
        *(("kind", "1.0", False), ("kind", "01", False), ("kind", "1", True)),
    ],
)
def test_numbers_of_columns_equal_every_spelling_and_text_only_its_own(
    bench: Bench, key: str, value: Any, found: bool
) -> None:
    rows = [{**ROWS[0], "quantity": 1, "amount": 2.0, "kind": "1"}]
    name = f"spelt_{key}_{type(value).__name__}_{value}".replace(".", "_")
    table = written(bench.engine.tables, name, rows, FileFormat.PARQUET)
    assert asked(bench, mean(source=orders(**only(key, value))), table)["control"].sum == found


def test_two_people_of_one_account_both_get_its_rows(bench: Bench, table: FileTable) -> None:
    found = asked(bench, mean(source=orders("sum", "amount")), table)
    assert (found["control"].sum, found["test"].sum) == (2, 2)
    both = [replace(event, properties={**event.properties, "account": "a1"}) for event in EXPOSED]
    question = bench.ask(SETTING, both, mean(source=orders("sum", "amount")), {"orders": table}.get)
    groups = bench.computer.result(question).groups
    assert (groups["control"].sum, groups["test"].sum) == (2, 2)


def test_a_row_is_not_its_own_return(bench: Bench) -> None:
    """One row is a start and no more; a second one, even at the same moment, is a return."""
    metric = retention(0, 0, "hour", start_event=orders(), completion_event=orders())
    for count, expected in ((1, 0), (2, 1)):
        table = written(bench.engine.tables, f"returns_{count}", ROWS[:1] * count, FileFormat.PARQUET)
        found = asked(bench, metric, table)
        assert (found["control"].number_of_samples, found["control"].sum) == (1, expected)
        assert "test" not in found


def test_funnels_with_tables_have_no_covariate(bench: Bench, table: FileTable) -> None:
    setting = replace(SETTING, lookback=timedelta(days=3))
    question = bench.ask(setting, EXPOSED, funnel(PURCHASE, orders()), {"orders": table}.get)
    assert isinstance(question.metric, FunnelMeasure)
    assert question.metric.covariate_us == 0
    question = bench.ask(setting, EXPOSED, mean(source=orders()), {"orders": table}.get)
    assert isinstance(question.metric, MeanMeasure)
    assert question.metric.covariate_us > 0


def test_files_that_changed_are_read_anew(bench: Bench, table: FileTable) -> None:
    metric = mean(source=orders("sum", "amount"))
    assert asked(bench, metric, table)["control"].sum == 2
    folder = bench.engine.tables.path / table.pattern.partition("/")[0]
    naive = [{**row, "at": row["at"].replace(tzinfo=None)} for row in [*ROWS, *ROWS]]
    write(folder / "0", pa.Table.from_pylist(naive, SCHEMA), FileFormat.PARQUET)
    assert asked(bench, metric, table)["control"].sum == 4
    other = SCHEMA.set(SCHEMA.get_field_index("amount"), pa.field("amount", pa.string()))
    write(folder / "0", pa.Table.from_pylist([], other), FileFormat.PARQUET)
    with pytest.raises(
        DefinitionError, match="orders: its column amount was float and is string now: refresh"
    ):
        asked(bench, metric, table)
    write(folder / "0", pa.table({"account": ["a1"]}), FileFormat.PARQUET)
    with pytest.raises(DefinitionError, match="its files have no column person any more"):
        asked(bench, metric, table)
    (folder / "0").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(DefinitionError, match="cannot be read as Parquet") as refused:
        asked(bench, metric, table)
    assert str(bench.engine.tables.path) not in str(refused.value)
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(DefinitionError, match=r"There is no file .*/\* in the directory of tables"):
        asked(bench, metric, table)


def test_a_value_that_does_not_fit_its_column_is_told(bench: Bench) -> None:
    table = written(bench.engine.tables, "spoilt", ROWS, FileFormat.CSV)
    path = bench.engine.tables.path / "spoilt" / "0"
    path.write_text(path.read_text().replace("2", "two"))
    with pytest.raises(ResultsError, match="orders"):
        asked(bench, mean(source=orders("sum", "amount")), table)


def test_the_files_of_a_table_are_looked_for_once_a_question(
    bench: Bench, table: FileTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where each day is a question of its own."""
    metric = mean(source=orders("sum", "amount"), upper_bound_percentile=0.9)
    question = bench.ask(SETTING, EXPOSED, metric, {"orders": table}.get)
    looked: list[str] = []
    files_of = TableDirectory.files_of

    def counted(directory: TableDirectory, wanted: FileTable) -> tuple[str, ...]:
        looked.append(wanted.name)
        return files_of(directory, wanted)

    monkeypatch.setattr(TableDirectory, "files_of", counted)
    assert len(bench.computer.points(question)) > 1
    assert looked == ["orders"]
