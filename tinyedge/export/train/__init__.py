"""Training bundles: what of a model is trained, by which loss and rule, as an entry beside it."""
