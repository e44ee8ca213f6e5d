"""Tables without a change feed: compared with what is remembered of them."""
