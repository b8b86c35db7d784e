"""CUDA C for NVIDIA GPUs: Jetson Orin first."""
