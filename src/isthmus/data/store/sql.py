"""Questions to a store in SQL, answered by DuckDB in memory.

DuckDB never opens a file: pyarrow hands it the parts, and with them the columns that a question needs. Whatever is asked, no
other file can be read or written, nothing is loaded or fetched, and memory has a limit.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.core.errors import BadInput
from isthmus.data.importers.parquet import import_pyarrow
from isthmus.data.store.hash_chain import ChainEntry, HashChain
from isthmus.data.store.tables import NUMBER_GROUPS, TABLES, arrow_schema

MEMORY_LIMIT = "2GB"
QUERY_THREADS = "2"
DUCKDB_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "python_enable_replacements": "false",
    "python_scan_all_frames": "false",
    "temp_directory": "",
    "memory_limit": MEMORY_LIMIT,
    "threads": QUERY_THREADS,
}
MAX_SQL = 100_000

VIEWS = {
    "valid_labels": "select * from marks where hash not in (select withdraws from marks where withdraws is not null)",
    "labels": "select hash, episode, start, stop, text, who, noted from valid_labels where text is not null",
    "tags": "select hash, episode, tag, who, noted from valid_labels where tag is not null",
    "verdicts": "select episode, arg_max(success, noted) as success, arg_max(who, noted) as who, max(noted) as noted "
    "from valid_labels where success is not null group by episode",
    "made_by": "select hash, list_filter(parents, lambda p: p.role = 'run')[1].hash as run, "
    "list_filter(parents, lambda p: p.role = 'belief')[1].hash as belief, task from artifacts where kind = 'controller'",
    "episodes": "select a.* replace (coalesce(v.success, a.success) as success, coalesce(a.run, m.run) as run, "
    "coalesce(a.belief, m.belief) as belief, coalesce(a.task, m.task) as task, "
    "case when t.tags is null then a.tags else list_distinct(list_concat(a.tags, t.tags)) end as tags) "
    "from episodes_with_groups a left join verdicts v on v.episode = a.hash left join made_by m on m.hash = a.controller "
    "left join (select episode, list(tag) as tags from tags group by 1) t on t.episode = a.hash",
    "links": "select hash as child, p.role as role, p.hash as parent from (select hash, unnest(parents) as p from artifacts) "
    "union all select hash, 'list', list from added_episodes where list is not null "
    "union all select hash, 'controller', controller from added_episodes where controller is not null "
    "union all select hash, 'run', run from added_episodes where run is not null "
    "union all select hash, 'parent', unnest(parents) from added_episodes",
}
REGISTERED_NAMES = {"episodes": "added_episodes"}
"""Names under which tables are handed over, where a view takes their own."""
QUERYABLE_TABLES = ("episodes", "signals", "events", "labels", "tags", "artifacts", "links", "entries")


@dataclass(frozen=True)
class Rows:
    names: list[str]
    rows: list[tuple[Any, ...]]
    more: bool
    """There are further rows."""


def import_duckdb() -> Any:
    """The package, or a BadInput that says how to get it."""
    try:
        import duckdb
    except ImportError:
        raise BadInput("asking a store needs duckdb: pip install 'isthmus[lab]'.") from None
    return duckdb


def connect_duckdb(chain: HashChain) -> Any:
    """A connection that sees the tables of a store, and nothing else."""
    from pyarrow.dataset import dataset

    pa, connection = import_pyarrow(), import_duckdb().connect(":memory:", config=DUCKDB_CONFIG)
    for table in TABLES:
        files = [str(chain.folder / e.parts[table].file) for e in chain.entries if table in e.parts]
        shape = arrow_schema(table, chain.extra_columns(table))
        data = dataset(files, schema=shape, format="parquet") if files else shape.empty_table()
        connection.register(REGISTERED_NAMES.get(table, table), data)
    connection.register("entries", _entries_table(pa, chain.entries))
    for name, text in (("episodes_with_groups", _episodes_view_sql(chain.extra_columns("episodes"))), *VIEWS.items()):
        connection.execute(f"create view {name} as {text}")
    connection.execute("set lock_configuration = true")
    return connection


def _episodes_view_sql(names: Sequence[str]) -> str:
    """Episodes with e and metrics as structs. A name that no episode has is an error then, and not a null."""
    groups = []
    for group in NUMBER_GROUPS:
        own = [n for n in names if n.startswith(f"{group}.")]
        fields = ", ".join(f"{_quote_identifier(n.partition('.')[2])} := {_quote_identifier(n)}" for n in own)
        groups.append(f"struct_pack({fields}) as {group}" if own else f"null as {group}")
    return f"select {', '.join((*TABLES['episodes'], *groups))} from added_episodes"  # noqa: S608


def _quote_identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _entries_table(pa: Any, entries: Sequence[ChainEntry]) -> Any:
    columns = {
        "number": pa.array([e.number for e in entries], pa.int64()),
        "added": pa.array([round(e.at * 1e6) for e in entries], pa.int64()).cast(pa.timestamp("us")),
        "hash": pa.array([e.hash for e in entries], pa.string()),
    }
    counts = {t: pa.array([e.parts[t].rows if t in e.parts else 0 for e in entries], pa.int64()) for t in TABLES}
    return pa.table(columns | counts)


def run_query(chain: HashChain, sql: str, rows: int) -> Rows:
    """The answer to one SELECT (also DESCRIBE, SUMMARIZE, SHOW TABLES and EXPLAIN); anything else is a BadInput."""
    db = import_duckdb()
    if len(sql) > MAX_SQL:
        raise BadInput(f"a query has at most {MAX_SQL} characters.")
    connection = connect_duckdb(chain)
    try:
        statements = connection.extract_statements(sql)
        kinds = [str(s.type).rpartition(".")[2] for s in statements]
        if len(kinds) != 1 or kinds[0] not in ("SELECT", "EXPLAIN"):
            what = f"{len(kinds)} statements" if len(kinds) != 1 else kinds[0]
            raise BadInput(
                f"a query is one SELECT over {', '.join(QUERYABLE_TABLES)}, not {what}: nothing is ever changed by one."
            )
        found = connection.execute(statements[0])
        names = [c[0] for c in found.description or ()]
        table = found.fetchmany(rows + 1)
    except db.Error as error:
        raise BadInput(f"DuckDB says: {_one_line_error(error)}") from None
    finally:
        connection.close()
    return Rows(names, [tuple(_to_json_value(v) for v in row) for row in table[:rows]], len(table) > rows)


def _one_line_error(error: Exception) -> str:
    """The message without the drawing under it, on one line."""
    text = " ".join(str(error).partition("LINE 1:")[0].split())[:1000]
    return text if text.endswith(("?", ".")) else text.rstrip("!") + "."


def _to_json_value(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, dict):
        return {str(k): _to_json_value(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(v) for v in value]
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)
