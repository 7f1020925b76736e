"""A model of power loss: what a process wrote is recorded, and disks are built that lost what was not synced."""
