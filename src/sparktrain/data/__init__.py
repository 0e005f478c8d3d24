"""Data on its way into a training step: types, Arrow blocks, spill, shuffling, files."""
