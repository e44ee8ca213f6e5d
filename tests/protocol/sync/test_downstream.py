"""What a cache says, as a client reads it."""

from __future__ import annotations

import json

import pytest

from protocol.errors import CodecError
from protocol.sync.downstream import (
    Connected,
    ErrorBody,
    PokeEnd,
    PokePart,
    PokeStart,
    PutRow,
    QueryFaults,
    Unused,
    decode,
)


def test_a_poke_is_read_part_by_part() -> None:
    start = decode('["pokeStart",{"pokeID":"p","baseCookie":null,"timestamp":7}]')
    part = decode(
        json.dumps(
            [
                "pokePart",
                {
                    "pokeID": "p",
                    "lastMutationIDChanges": {"c": 3},
                    "gotQueriesPatch": [{"op": "put", "hash": "h"}],
                    "rowsPatch": [{"op": "put", "tableName": "t", "value": {"id": 1}}],
                },
            ]
        )
    )
    end = decode('["pokeEnd",{"pokeID":"p","cookie":"01"}]')
    assert isinstance(start, PokeStart)
    assert start.base_cookie is None
    assert isinstance(part, PokePart)
    assert part.last_mutation_id_changes == {"c": 3}
    (row,) = part.rows_patch
    assert isinstance(row, PutRow)
    assert row.value == {"id": 1}
    assert isinstance(end, PokeEnd)
    assert not end.cancel


def test_fields_nobody_knows_are_dropped_and_those_of_an_error_are_kept() -> None:
    assert decode('["connected",{"wsid":"w","colour":"red"}]') == Connected(wsid="w")
    fault = decode('["error",{"kind":"Rehome","message":"m","origin":"zeroCache","minBackoffMs":5}]')
    assert isinstance(fault, ErrorBody)
    assert fault.model_extra == {"minBackoffMs": 5}


def test_refused_queries_are_an_array_on_the_wire() -> None:
    told = decode('["transformError",[{"error":"app","id":"h","name":"n","message":"no"}]]')
    assert isinstance(told, QueryFaults)
    assert [(each.id, each.message) for each in told.queries] == [("h", "no")]


def test_messages_of_no_use_are_let_by() -> None:
    assert isinstance(decode('["deleteClients",{"clientIDs":[]}]'), Unused)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1", "not JSON"),
        ("{}", "an array of a tag and a body"),
        ('["connected"]', "an array of a tag and a body"),
        ('["hello",{}]', "unknown message 'hello'"),
        ('[["connected"],{}]', "unknown message"),
        ('["pokeEnd",{"pokeID":"p","cookie":7}]', "pokeEnd.cookie"),
        ('["pokePart",{"pokeID":"p","rowsPatch":[{"op":"turn"}]}]', "pokePart.rowsPatch"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(CodecError) as refused:
        decode(text)
    assert said in str(refused.value)
