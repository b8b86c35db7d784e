"""WGSL for browsers and for wgpu."""
