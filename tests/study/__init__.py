"""What the generated kernels reach beside hand-written C and other libraries: docs/study.md.

Operations, whole models and growth with size, on the processor; one command, all sides in turn:

    python -m tests.study                # operations
    python -m tests.study models         # models on one and two threads
    python -m tests.study scale          # layers, sequence length, image size
"""
