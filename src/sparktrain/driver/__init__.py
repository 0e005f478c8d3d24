"""What runs in the user's process: plans a run, launches it, watches it, restarts it."""
