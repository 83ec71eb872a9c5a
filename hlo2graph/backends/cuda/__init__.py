"""CUDA: kernels as C++ text, compiled by NVRTC, run as one graph."""
