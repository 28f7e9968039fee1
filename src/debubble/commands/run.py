"""`debubble run`: execute a plan on real processes."""
