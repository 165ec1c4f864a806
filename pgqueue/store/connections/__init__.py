"""How plans run: databases, pools, connections of each driver, and their settings."""
