"""One pass over the tensors of a round: means, inner products and norms in bounded memory."""
