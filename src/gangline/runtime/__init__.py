"""A controller runtime: caches, work queues, controllers, leader election, events. Knows nothing about jobs."""
