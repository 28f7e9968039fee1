"""The runtime: executes plans with torch.distributed."""
