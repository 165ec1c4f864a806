"""No module of the package imports itself through others: each can be read after those that it imports.

import-linter's contract "No cycles inside a floor" compares folders. The floors values, store and app have folders by
capability, and capabilities need one another: a flow's jobs are enqueued, and the end of a job releases the next of its
flow. Their modules have an order nevertheless.
"""

from graphlib import CycleError, TopologicalSorter

import grimp


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("pgqueue", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    imports["pgqueue.errors"] = set()  # it names values for type checkers only
    cycle: list[str] = []
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        cycle = error.args[1]
    assert cycle == []
