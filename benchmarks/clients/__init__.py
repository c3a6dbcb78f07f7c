"""The clients that are measured: one short adapter a client, and what all adapters share.

An adapter is a function ``(job, note, ended)``. It runs ``job.members`` consumers as the client's
own documentation recommends, calls ``note(number, rows)`` for each batch once it is processed, and
returns soon after ``ended`` is set. What ``note`` does with a batch is the benchmark's business
(``sinks``), so that one adapter serves every benchmark. The programs in Go and Java do the same.
"""
