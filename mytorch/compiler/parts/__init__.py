"""Parts: programs that run part by part of the batch, in less memory, also as a stream."""
