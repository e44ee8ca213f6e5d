"""The rules of a stream by what they need: a frame alone, or the replica it is applied to."""
