"""Each kind of upstream, as the official zero-cache sees it."""
