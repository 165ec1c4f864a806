"""The logger of a task, as ``celery.utils.log`` has it: Python's own, which the worker's formatter gives the job."""

import logging

get_task_logger = logging.getLogger
