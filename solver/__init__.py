"""The solver: bounds, constructions and exact search."""
