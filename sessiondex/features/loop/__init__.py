"""The model loop that the extract worker, the compaction worker and model-run children share."""
