"""trio on a background thread, for groups of programs without trio. Not public.

``event_loop`` has the thread and the calls into it, ``flag`` an event of threads, and ``group`` the
trio group that runs there, for ``kgroup.threaded`` and ``kgroup.aio``.
"""
