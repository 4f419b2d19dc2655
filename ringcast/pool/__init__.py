"""`ringcast.Pool`: tasks for ranks that wait for them, as an executor of concurrent.futures."""
