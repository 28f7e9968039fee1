"""The commands of the command line, one a module; each holds a click command called `command`."""
