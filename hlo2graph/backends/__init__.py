"""What runs a Plan: the host with NumPy, CUDA with a graph. Each is loaded only when chosen."""
