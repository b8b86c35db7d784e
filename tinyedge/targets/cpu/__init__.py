"""C for the system's compiler."""
