import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import watermark
from protocol.errors import HandshakeError
from protocol.stream.handshake import Handshake, parse_parameters, parse_path, parse_query, parse_target


def test_a_first_connection_of_the_shipped_dialect() -> None:
    version, handshake = parse_target("/changes/v0/stream?appID=zero&shardNum=0&publications=b&publications=a&apiKey=x")
    assert version == "v0"
    assert handshake == Handshake("shipped", "zero", 0, frozenset({"a", "b"}))
    assert handshake.is_initial
    assert handshake.shard == "zero_0"


def test_a_live_connection_of_the_shipped_dialect() -> None:
    handshake = parse_query("appID=my_app&shardNum=12&lastWatermark=0b&replicaVersion=0a")
    assert handshake == Handshake("shipped", "my_app", 12, frozenset(), "0b", "0a")
    assert not handshake.is_initial


@pytest.mark.parametrize(
    ("shard_id", "app_id", "shard_num"),
    [("zero_0", "zero", 0), ("zero", "zero", 0), ("my_app_12", "my_app", 12), ("a_1_2", "a_1", 2), ("0", "0", 0)],
)
def test_the_shard_id_of_the_sketch_names_app_and_shard(shard_id: str, app_id: str, shard_num: int) -> None:
    assert parse_query(f"shardID={shard_id}&lastWatermark=0a") == Handshake(
        "sketch", app_id, shard_num, frozenset(), "0a"
    )


def test_parameters_may_come_split() -> None:
    assert parse_parameters({"appID": ["zero"], "shardNum": ("1",)}) == Handshake("shipped", "zero", 1)


@pytest.mark.parametrize(
    ("query", "parameter", "message"),
    [
        ("", "appID", "is missing"),
        ("appID=zero", "shardNum", "is missing"),
        ("shardNum=0", "appID", "is missing"),
        ("shardNum=0&shardID=zero_0", "appID", "is missing"),
        ("appID=&shardNum=0", "appID", "'' is not valid"),
        ("appID=Zero&shardNum=0", "appID", "'Zero' is not valid"),
        ("appID=zero%0A&shardNum=0", "appID", "is not valid"),
        ("appID=zero&appID=one&shardNum=0", "appID", "is given 2 times"),
        ("appID=zero&shardNum=-1", "shardNum", "'-1' is not valid"),
        ("appID=zero&shardNum=1e3", "shardNum", "'1e3' is not valid"),
        ("appID=zero&shardNum=٣", "shardNum", "is not valid"),
        ("shardID=Zero", "shardID", "'Zero' is not valid"),
        ("appID=zero&shardNum=0&lastWatermark=", "lastWatermark", "not a LexiVersion"),
        ("appID=zero&shardNum=0&lastWatermark=00", "lastWatermark", "empty view"),
        ("appID=zero&shardNum=0&lastWatermark=01&lastWatermark=02", "lastWatermark", "is given 2 times"),
        ("appID=zero&shardNum=0&lastWatermark=01&replicaVersion=x", "replicaVersion", "not a LexiVersion"),
        ("appID=zero&shardNum=0&replicaVersion=01", "lastWatermark", "is missing"),
        ("appID=%ff&shardNum=0", "query", "malformed"),
        ("&".join(f"x{number}=1" for number in range(1001)), "query", "malformed"),
    ],
)
def test_a_bad_query_is_refused_naming_the_parameter_and_the_fix(query: str, parameter: str, message: str) -> None:
    with pytest.raises(HandshakeError) as caught:
        parse_query(query)
    assert caught.value.where == parameter
    assert message in caught.value.message
    assert caught.value.fix
    assert caught.value.status == 400


@pytest.mark.parametrize("path", ["/", "/changes/v1/stream", "/changes/v0/stream/", "changes/v0/stream"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    with pytest.raises(HandshakeError, match="/changes/v0/stream") as caught:
        parse_path(path)
    assert caught.value.status == 404


app_ids = st.from_regex(r"[a-z0-9_]*[a-z]", fullmatch=True)
watermarks = st.integers(1, 10**15).map(watermark.from_int)


@given(
    st.builds(
        Handshake,
        st.sampled_from(["shipped", "sketch"]),
        app_ids,
        st.integers(0, 999),
        st.frozensets(st.text(st.characters(exclude_categories=["Cs"]), max_size=15), max_size=64),
        watermarks,
        st.none() | watermarks,
    )
)
def test_the_query_of_a_handshake_asks_for_the_same(handshake: Handshake) -> None:
    assert parse_query(handshake.query) == handshake


@pytest.mark.parametrize(
    ("query", "where"),
    [
        (f"appID={'a' * 62}&shardNum=0", "appID"),
        (f"shardID={'a' * 62}_1", "shardID"),
        (f"appID=zero&shardNum=0&publications={'p' * 64}", "publications"),
        ("appID=zero&shardNum=0" + "".join(f"&publications=p{n}" for n in range(65)), "publications"),
    ],
)
def test_names_are_bounded(query: str, where: str) -> None:
    with pytest.raises(HandshakeError) as caught:
        parse_query(query)
    assert caught.value.where == where
