"""Placing: programs run on several devices, cut where the fewest bytes cross."""
