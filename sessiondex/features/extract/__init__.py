"""The extract worker: from a frozen capture to staged memory candidates with evidence."""
