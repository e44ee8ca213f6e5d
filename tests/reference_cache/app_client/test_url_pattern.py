"""Which URLs a pattern lets a client name."""

import pytest

from reference_cache.app_client.url_pattern import canonical, is_allowed


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
        ("http://[::1]:3000/q", "http://[::1]:3000/q"),
        ("https://api.example.com/query/*", "HTTPS://API.Example.com/query/%61"),
        ("https://api.example.com/query", "https://api.example.com/x/../query"),
        ("https://api.example.com/query", "https:\\\\api.example.com\\query"),
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
        ("http://app/api/query/*", "http://app/api/query/../../admin"),
        ("http://app/api/query/*", "http://app/api/query/%2e%2e/%2E%2e/admin"),
        ("http://app/api/query/*", "http://app/api/query/.%2e/../admin"),
        ("http://app/api/query/*", "http://app/api/query\\..\\..\\admin"),
        ("http://app/api/query/*", "http://app/api/query/..%2f..%2fadmin"),
        ("http://app/api/query/*", "http://app/api/query/..%5c..%5cadmin"),
        ("http://app/api/query/*", "http://app/api/query/x/../../../admin"),
        ("http://app/api/query/*", "http://app/api/query/.."),
        ("http://app/api/query/*", "http://app/api/query/%00"),
        ("http://app/api/query/*", "http://app/api/query/%zz"),
        ("http://app/api/query/*", "http://app/api/query/\x0d\x0aX-Evil: 1"),
        ("http://app/api/query/*", "http://user:secret@app/api/query/x"),
        ("http://app/api/query/*", "http://app:80@evil/api/query/x"),
        ("http://app/api/query/*", "http://app\\@evil/api/query/x"),
        ("http://app/api/query/*", "http://evil#@app/api/query/x"),
        ("http://app/api/query/*", "http://app./api/query/x"),
        ("http://app/api/query/*", "http:///api/query/x"),
        ("http://app/api/query/*", "http://\uff41pp/api/query/x"),
        ("http://app/api/query/*", "http://app:99999/api/query/x"),
    ],
)
def test_any_other_is_not(pattern: str, url: str) -> None:
    assert not is_allowed(url, [pattern])


@pytest.mark.parametrize(
    ("url", "spelled"),
    [
        ("HTTP://App:80", "http://app/"),
        ("https://app:443/a/./b/../c?x=%2e#part", "https://app/a/c?x=%2e"),
        ("http://app:8080/%7euser/%e2%82%ac/a%2Cb/.", "http://app:8080/~user/%E2%82%AC/a%2Cb/"),
        ("http://app/../../x/..", "http://app/"),
        ("http://app//a//b", "http://app//a//b"),
        ("http://app/gr\u00fcn?q=a|b", "http://app/gr%C3%BCn?q=a|b"),
    ],
)
def test_a_url_has_one_spelling(url: str, spelled: str) -> None:
    assert canonical(url) == spelled
    assert canonical(spelled) == spelled
