"""``kgroup timeline``: what the members of a group did, drawn over time.

``reader`` reads the lines that ``GroupConfig.events_to`` writes, ``story`` makes spans and marks of
them, ``picture`` draws these as SVG in the colours and shapes of ``style``, and ``page``
is the HTML page around the picture.
"""
