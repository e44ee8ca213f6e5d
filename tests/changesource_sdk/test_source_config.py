"""The table `[sources]`: what it may hold, and what is said of mistakes."""

from __future__ import annotations

import pytest

from changesource_cli.adapter_choice import source_specs
from changesource_sdk import config as configuration
from changesource_sdk.config import Effective
from changesource_sdk.errors import ConfigurationError
from changesource_sdk.source_config import SourceConfig

TWO = """
[sources.crm]
adapter = "postgres"
set = { url = "postgresql://app:hunter2hunter2@db/crm" }

[sources.events]
adapter = "kafka"
prefix = "events_"
"""


def load(toml: str, environment: dict[str, str] | None = None, **flags: object) -> Effective:
    return configuration.load(toml=toml, toml_name="c.toml", environment=environment or {}, flags=flags)


def test_sources_are_read_by_name_in_their_order() -> None:
    sources = load(TWO).config.sources
    assert list(sources) == ["crm", "events"]
    assert sources["events"] == SourceConfig("kafka", prefix="events_")


def test_flags_and_variables_set_what_belongs_to_a_source() -> None:
    environment = {"CHANGESOURCE_SET_CRM__URL": "postgresql://db/other", "CHANGESOURCE_SET_EVENTS__SERVERS": "a:9092"}
    config = load(TWO, environment, settings={"events.servers": "b:9092"}).config
    assert config.sources["crm"].settings == {"url": "postgresql://db/other"}
    assert config.sources["events"].settings == {"servers": "b:9092"}
    assert config.settings == {}


def test_secrets_of_sources_are_not_shown() -> None:
    effective = load(TWO)
    assert "hunter2" not in str(effective.describe()) + str(effective.as_json())
    assert effective.shown("sources") == "crm=postgres, events=kafka"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("sources = 1", "table of tables"),
        ("[sources]\ncrm = 'postgres'", "table of tables"),
        ("[sources.crm]\nprefix = 'a'", "has no adapter"),
        ("[sources.crm]\nadapter = 'x'\nprefx = 'a'", "unknown key 'prefx'"),
        ("[sources.CRM]\nadapter = 'x'", "cannot be the name"),
        ("[sources.a__b]\nadapter = 'x'", "cannot be the name"),
        (f"[sources.{'a' * 41}]\nadapter = 'x'", "cannot be the name"),
        ("[sources.crm]\nadapter = 'x'\nprefix = 'a.b'", "is no name"),
        ("[sources.crm]\nadapter = 'x'\nprefix = 'a'\n[sources.crm.mapping.t]\nname = 'u'", "prefix and a mapping"),
        ("[sources.crm]\nadapter = 'x'\nset = 'a'", "must be a table"),
        ("[sources.crm]\nadapter = 'x'\non-bad-value = 'skip'", "is no policy"),
        ("[sources.crm]\nadapter = 'x'\non_bad_value = ''", "is no policy"),
        ("[sources.crm]\nadapter = 'x'\non_bad_value = 'null'\non-bad-value = 'stop'", "two spellings"),
        ("adapter = 'memory'\n[sources.crm]\nadapter = 'x'", "single upstream as well"),
        ("\n".join(f"[sources.s{number}]\nadapter = 'x'" for number in range(33)), "33 sources"),
    ],
)
def test_a_mistake_is_refused_with_a_fix(toml: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        load(toml)
    assert raised.value.fix


def test_a_setting_of_no_source_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="none of the sources crm, events"):
        load(TWO, settings={"url": "x"})


@pytest.mark.parametrize("spelling", ["on_bad_value", "on-bad-value"])
def test_a_source_has_a_policy_of_its_own_for_bad_values(spelling: str) -> None:
    effective = load(f'{spelling} = "dead-letter"\n{TWO}{spelling} = "null"')
    crm, events = source_specs(effective.config)
    assert (crm.on_bad_value, events.on_bad_value) == ("dead-letter", "null")
    assert effective.shown("sources") == "crm=postgres, events=kafka (on_bad_value=null)"
    shown = effective.as_json()["sources"]["value"]
    assert isinstance(shown, dict)
    assert shown["events"]["on_bad_value"] == "null"


def test_a_key_in_two_spellings_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'on-bad-value' is given in two spellings"):
        load('on_bad_value = "stop"\non-bad-value = "null"')
