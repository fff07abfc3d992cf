"""The command line: parses, calls, prints, and holds no logic."""
