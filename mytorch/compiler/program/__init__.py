"""Programs as data: instructions, the values that they take and give, and where they come from."""
