"""``pgqueue demo``: the main job on real input; :mod:`pgqueue.cli.demo.command` decides the order of events."""
