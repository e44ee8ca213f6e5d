"""TLS and logins at a real listener: what is set is used, and what does not suit is told by the setting to correct."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)

from adapters.kafka import KafkaAdapter
from adapters.kafka.broker.refusals import refusal
from changesource_sdk.errors import AdapterError
from tests.adapters.kafka.made_records import settings_of
from tests.support.certificates import Authority
from tests.support.peers.kafka_broker import PASSWORD, USER, KafkaBroker


@pytest.fixture(scope="module")
def topic(kafka: KafkaBroker) -> str:
    name = kafka.create_topic(kafka.topic_name("items"))
    with kafka.producer() as producer:
        producer.send(name, key=b'{"id":1}', value=b'{"id":1,"name":"a"}')
    return name


def an_adapter(kafka: KafkaBroker, topic: str, **changes: object) -> KafkaAdapter:
    """One that trusts the broker and logs in, unless told otherwise."""
    security: dict[str, object] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": str(kafka.ca),
    }
    return KafkaAdapter(kafka.secured, topic, format="upsert", **{**security, **changes})


def told(adapter: KafkaAdapter) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        adapter.snapshot()
    return caught.value


def test_topics_are_read_over_tls_with_a_login(kafka: KafkaBroker, topic: str) -> None:
    adapter = an_adapter(kafka, topic)
    [partition] = adapter.snapshot().partitions
    assert list(partition.rows()) == [{"id": 1, "name": "a"}]
    assert all(check.ok for check in adapter.examine())


def test_a_wrong_password_is_told_with_the_settings_of_the_login(kafka: KafkaBroker, topic: str) -> None:
    error = told(an_adapter(kafka, topic, sasl_plain_password="wrong"))
    assert (error.code, error.where) == ("login-refused", kafka.secured)
    assert "sasl_plain_password" in error.fix
    assert "wrong" not in error.message


def test_a_certificate_that_is_not_trusted_is_told_with_the_setting_that_names_the_authority(
    kafka: KafkaBroker, topic: str, tmp_path: Path
) -> None:
    error = told(an_adapter(kafka, topic, ssl_cafile=str(Authority(tmp_path, "stranger").ca)))
    assert (error.code, error.where) == ("certificate-refused", kafka.secured)
    assert "CERTIFICATE_VERIFY_FAILED" in error.message
    assert "ssl_cafile" in error.fix


def test_a_file_that_is_not_there_is_told_with_its_setting(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    error = told(an_adapter(kafka, topic, ssl_cafile=str(tmp_path / "none.pem")))
    assert (error.code, error.where) == ("bad-setting", "ssl_cafile")
    assert error.message == f"there is no file {tmp_path / 'none.pem'}"


@pytest.mark.parametrize(
    ("heard", "code", "fix"),
    [
        (SaslAuthenticationFailedError("no"), "login-refused", "sasl_plain_password"),
        (UnsupportedSaslMechanismError("no SCRAM"), "login-refused", "sasl_mechanism"),
        (
            KafkaConnectionError("Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] Hostname mismatch"),
            "certificate-refused",
            "ssl_check_hostname=false",
        ),
        (
            KafkaConnectionError("Handshake failed: [SSL: WRONG_VERSION_NUMBER] wrong version number"),
            "tls-failed",
            "security_protocol",
        ),
    ],
)
def test_each_refusal_names_what_to_correct(heard: Exception, code: str, fix: str) -> None:
    found = refusal(settings_of(), [heard, KafkaConnectionError("socket disconnected")])
    assert found is not None
    assert found.code == code
    assert fix in found.fix


def test_a_connection_that_is_closed_while_logging_in_is_a_login_refused() -> None:
    """The answer to a refused login and the end of the connection are one step of the broker, and may arrive as one."""
    logging_in = settings_of(security_protocol="SASL_SSL", sasl_mechanism="PLAIN")
    closed, nobody = KafkaConnectionError("socket disconnected"), KafkaConnectionError("ECONNREFUSED")
    found = refusal(logging_in, [nobody, closed, KafkaTimeoutError("no bootstrap")])
    assert found is not None
    assert found.code == "login-refused"
    assert refusal(logging_in, [closed, nobody]) is None


def test_silence_alone_is_no_refusal() -> None:
    assert refusal(settings_of(), [KafkaConnectionError("socket disconnected"), FileNotFoundError("x")]) is None
