"""What can be asked of a capture or a library: overview, search, listing, read, evidence."""
