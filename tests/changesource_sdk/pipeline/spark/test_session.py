"""Masters and settings, before any Spark is started."""

import os
import socket

import pytest

from changesource_sdk.errors import ConfigurationError
from changesource_sdk.pipeline.spark.session import check_master, resolve_master
from tests.support.ports import free_port


def test_a_local_master_keeps_two_slots_and_tries_tasks_again() -> None:
    assert resolve_master("local") == "local[2,4]"
    assert resolve_master("local[1]") == "local[2,4]"
    assert resolve_master("local[8]") == "local[8,4]"
    assert resolve_master("local[3,7]") == "local[3,7]"
    assert resolve_master("local[*]") == f"local[{max(2, os.cpu_count() or 1)},4]"


@pytest.mark.parametrize("master", ["yarn", "k8s://https://host:6443", "local-cluster[2,1,1024]"])
def test_other_masters_are_passed_on_as_they_are(master: str) -> None:
    check_master(master)
    assert resolve_master(master) == master


def test_an_unknown_master_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_master("sparc://host:7077")
    assert refused.value.code == "master-unknown"
    assert "spark://host:port" in refused.value.fix


def test_a_master_that_does_not_answer_is_refused_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_master(f"spark://127.0.0.1:{free_port()}")
    assert refused.value.code == "master-unreachable"


def test_one_answering_master_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{master.getsockname()[1]}")
