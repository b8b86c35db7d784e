"""OpenCL C for Qualcomm's Adreno GPUs."""
