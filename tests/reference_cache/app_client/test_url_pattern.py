"""Which URLs a pattern lets a client name."""

import pytest

from reference_cache.app_client.url_pattern import is_allowed


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        ("https://api.example.com/mutate", "https://api.example.com/mutate"),
        ("https://api.example.com/mutate", "https://api.example.com:443/mutate?x=1#y"),
        ("https://*.example.com/mutate", "https://eu.example.com/mutate"),
        ("https://*.*.example.com/mutate", "https://a.eu.example.com/mutate"),
        ("https://api.example.com/*", "https://api.example.com/any/where"),
        ("https://api.example.com/:version/mutate", "https://api.example.com/v1/mutate"),
        (r"https://api.example.com/:version(v\d+)/mutate", "https://api.example.com/v12/mutate"),
        ("https://api.example.com/mutate/:part?", "https://api.example.com/mutate"),
        ("https://api.example.com/mutate/:part?", "https://api.example.com/mutate/x"),
        ("http://localhost:3000/q", "http://localhost:3000/q"),
    ],
)
def test_a_url_that_matches_is_allowed(pattern: str, url: str) -> None:
    assert is_allowed(url, ["http://other/", pattern])


@pytest.mark.parametrize(
    ("pattern", "url"),
    [
        ("https://api.example.com/mutate", "http://api.example.com/mutate"),
        ("https://api.example.com/mutate", "https://api.example.com/mutate/more"),
        ("https://api.example.com/mutate", "https://api.example.com:8443/mutate"),
        ("https://api.example.com/mutate", "https://api.example.com@evil.com/mutate"),
        ("https://api.example.com/mutate", "https://apixexample.com/mutate"),
        ("https://*.example.com/mutate", "https://evil.com/.example.com:443/mutate"),
        ("https://*.example.com/mutate", "https://evil.com/x.example.com/mutate"),
        ("https://api.example.com/:version/mutate", "https://api.example.com/a/b/mutate"),
        (r"https://api.example.com/:version(v\d+)/mutate", "https://api.example.com/x1/mutate"),
        ("http://localhost:3000/q", "http://localhost:3001/q"),
        ("http://localhost:3000/q", "http://[::1/q"),
        ("http://localhost:3000/q", "file:///etc/passwd"),
    ],
)
def test_any_other_is_not(pattern: str, url: str) -> None:
    assert not is_allowed(url, [pattern])
