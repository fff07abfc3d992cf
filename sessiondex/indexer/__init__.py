"""Sessions in, captures on disk: sources, item store, term index, catalog and library."""
