"""One file per raw format."""
