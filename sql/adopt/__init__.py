"""The statements that move the waiting jobs of another queue into ours."""
