"""Files beside the database: a reserve for deletions on a full disk, a marker that notices loss, and disk errors."""
