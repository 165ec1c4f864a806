"""The process that runs jobs. Asynchronous only; read :mod:`pgqueue.worker.worker` first, top to bottom."""
