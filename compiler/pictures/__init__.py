"""Pictures of a timeline: in the terminal, and as figures."""
