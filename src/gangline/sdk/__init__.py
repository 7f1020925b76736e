"""The Python SDK: a training client with and without an event loop, job builders and `gangline.train`."""
