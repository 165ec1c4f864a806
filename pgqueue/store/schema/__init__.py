"""How the schema is installed, upgraded and checked, and the rights of roles."""
