from reference_cache.zql.format import Format


def test_a_format_is_read_and_written() -> None:
    value = {"singular": True, "relationships": {"comments": {"singular": False, "relationships": {}}}}
    read = Format.from_json(value)
    assert read == Format(True, {"comments": Format()})
    assert read.to_json() == value
