"""Teams whose life is written down, for tests of the hang watcher."""
