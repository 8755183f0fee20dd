"""From tiles to the cores and pipes of Ascend NPUs."""
