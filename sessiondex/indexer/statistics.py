"""What a library holds and how large its parts are."""

from __future__ import annotations

from typing import Any

from sessiondex.indexer.assembly import Counts
from sessiondex.indexer.catalog_rows import SessionRow
from sessiondex.indexer.library import Library


def library_stats(library: Library) -> dict[str, Any]:
    """`{coverage, entries, sizes, refreshed_at}`: sizes in bytes, time in epoch milliseconds."""
    epoch = library.epoch()
    catalog = epoch.catalog
    counts = Counts()
    agents: dict[str, dict[str, int]] = {}
    text_bytes = turns = records = 0
    sub_agents = superseded = 0
    for (text,) in catalog.rows("SELECT row FROM sessions WHERE current=1"):
        row = SessionRow.from_json(text)
        counts = counts.plus(row.kind_counts)
        agent = agents.setdefault(row.agent, {"sessions": 0, "entries": 0})
        agent["sessions"] += 1
        agent["entries"] += row.entries
        text_bytes += row.text_bytes
        turns += row.turns
        records += row.records
        sub_agents += row.sub_agent
        superseded += row.generation > 1
    files = catalog.row(
        "SELECT count(*), ifnull(sum(format<>''),0), ifnull(sum(format=''),0),"
        " ifnull(sum(reason<>'' AND reason NOT LIKE 'the same session as %'),0),"
        " ifnull(sum(gone),0), ifnull(sum(CASE WHEN format<>'' AND size>0 THEN size END),0)"
        " FROM sources"
    )
    store: dict[str, int] = {}
    for info in epoch.store.files():
        store[info.stream] = store.get(info.stream, 0) + info.size
    index_bytes = catalog_bytes = 0
    if library.path is not None:
        folder = library.path / f"index-{epoch.number}"
        index_bytes = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
        catalog_bytes = sum(
            path.stat().st_size for path in library.path.glob(f"catalog-{epoch.number}.*")
        )
    return {
        "coverage": {
            "files": files[0],
            "indexed": files[1],
            "skipped": files[2],
            "failed": files[3],
            "gone": files[4],
            "sessions": sum(agent["sessions"] for agent in agents.values()),
            "sub_agents": sub_agents,
            "rewritten": superseded,
            "turns": turns,
            "records": records,
            "agents": dict(sorted(agents.items())),
        },
        "entries": {**counts.by_kind(), "total": counts.total},
        "sizes": {
            "source": files[5],
            "text": text_bytes,
            **{f"items_{stream}": size for stream, size in sorted(store.items())},
            "index": index_bytes,
            "catalog": catalog_bytes,
            "library": sum(store.values()) + index_bytes + catalog_bytes,
        },
        "refreshed_at": catalog.meta("refreshed_at"),
    }
