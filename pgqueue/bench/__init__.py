"""``pgqueue bench``: what a queue costs on your database, beside a bare client that does the least possible.

Two contenders, pgqueue (:mod:`.peer`) and the bare client (:mod:`.floor`), run as processes (:mod:`.processes`) in a schema of the
bench's own (:mod:`.place`). :mod:`.loads` decides what is measured, :mod:`.run` how often.
"""
