"""One file a defence."""
