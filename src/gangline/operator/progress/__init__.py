"""Progress reports of training programs, on their way into the annotation of their pod.

Two senders: an HTTP endpoint (`endpoint.py`), to which pods report with a token (`reporters.py` says whose it is), and
the reader of logs (`log_reader.py`). Both hand over to `writer.py`, which writes at a limited rate and loses no last
report. The job engine reads the annotation and writes the status, whoever received the report.
"""
