"""A shop in FastAPI: an order and the job that sends its receipt are committed together, or neither is."""
