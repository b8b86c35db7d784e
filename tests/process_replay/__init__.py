"""Process replay: what a change of the code changes in the bundles of a corpus.

    python -m tests.process_replay BASE [HEAD]    # two commits; without HEAD: the working tree
    python -m tests.process_replay --quick        # a small corpus, against where this branch began

Each side compiles the same .onnx files with its own code through `tinyedge.export_onnx`, so that it
works across any restructuring below that function.
"""
