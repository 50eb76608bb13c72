"""One place for simulated and real episodes that can be asked: Parquet parts under a chain of hashes, DuckDB to query them.

    store = Store("store")
    store.add([Path("walk.mcap"), Path("runs/a")])
    found = store.query("select unit, count(*), avg(success) from episodes group by 1")

On disk:

    store/chain.jsonl      one line per addition: its parts with their hashes, the hash of the line before, and its own
    store/parts/*.parquet  rows of one table each, named by their hash, never changed
    store/lock             whoever adds holds it
"""

from isthmus.data.store.store import AddResult, Store

__all__ = ["AddResult", "Store"]
