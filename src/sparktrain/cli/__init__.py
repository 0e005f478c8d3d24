"""The `sparktrain` command."""
