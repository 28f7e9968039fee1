"""The compiler: everything about schedules except how to find good ones and how to run them."""
