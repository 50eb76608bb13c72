"""How far a recording is from the simulator, and why."""
