"""``pgqueue demo``: the main job on real input; :mod:`pgqueue.cli.demo.command` is the order of events."""
