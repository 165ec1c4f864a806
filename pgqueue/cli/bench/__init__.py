"""``pgqueue bench``: what a queue costs on your database; :mod:`pgqueue.cli.bench.command` lists its verbs."""
