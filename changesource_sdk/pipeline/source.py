"""What a pipeline reads: an adapter by import path and settings, with the ledger and the mappings around it.

All of it is plain values, so it travels to other processes, in a file or pickled, and each makes its own adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256

from changesource_sdk.adapter import Adapter
from changesource_sdk.ledger.adapter import LedgeredAdapter
from changesource_sdk.pipeline.adapter_factory import adapter_factory
from changesource_sdk.pipeline.mapped import MappedAdapter
from changesource_sdk.pipeline.mapping.declare import Mappings, fingerprint, load_mappings
from changesource_sdk.pipeline.mapping.prefix import PrefixedAdapter

# How earlier releases named a wrapped source: by the import path of the wrapping adapter.
_MAPPED = "changesource_sdk.pipeline.mapped:MappedAdapter"
_LEDGERED = "changesource_sdk.ledger.adapter:LedgeredAdapter"


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """A source. `adapter` is `module:Class`. `ledger` is the path of the ledger's file, "" without one. `mapping` has
    the declared mappings by table, `mappings` is the `module:NAME` of those written in Python. `on_bad_value` is the
    setting of that name, "" if it is not set. `name` is set where several sources share a log, and `prefix` is then put
    before the names of its tables and indexes.
    """

    adapter: str
    settings: Mapping[str, object] = field(default_factory=dict)
    ledger: str = ""
    mapping: Mapping[str, object] = field(default_factory=dict)
    mappings: str = ""
    on_bad_value: str = ""
    name: str = ""
    prefix: str = ""

    def factory(self) -> Callable[[], Adapter]:
        """Return a function that makes a new adapter. Raises `ConfigurationError` if it cannot be imported."""
        make = adapter_factory(self.adapter, self.settings)
        if self.ledger:
            make = _around(make, lambda adapter: LedgeredAdapter(adapter, self.ledger))
        if self.prefix:
            make = _around(make, lambda adapter: PrefixedAdapter(adapter, self.prefix))
        if self.is_mapped:
            mappings = self.loaded_mappings()
            make = _around(make, lambda adapter: MappedAdapter(adapter, mappings))
        return make

    @property
    def is_mapped(self) -> bool:
        """Whether there are mappings."""
        return bool(self.mapping or self.mappings)

    def loaded_mappings(self) -> Mappings:
        """The mappings by table. Raises `ConfigurationError` for one that cannot be used."""
        return load_mappings(self.mapping, self.mappings) if self.is_mapped else {}

    def unmapped(self) -> SourceSpec:
        """The same source without its mappings."""
        return replace(self, mapping={}, mappings="")

    def fingerprint(self) -> str:
        """A text that changes when the same upstream would show its tables to consumers in another way."""
        return f"{fingerprint(self.loaded_mappings())}:{self.prefix}"

    def identity(self) -> str:
        """A hash of everything but the upstream that a snapshot depends on; hashed, since settings may hold secrets.

        An unfinished snapshot is resumed only by the same source, so the hash must stay as earlier releases made it.
        """
        adapter, settings = self._as_wrapped()
        content = (adapter, sorted(settings.items()), fingerprint(self.loaded_mappings()))
        return sha256(repr(content).encode()).hexdigest()

    def _as_wrapped(self) -> tuple[str, Mapping[str, object]]:
        """Import path and settings as earlier releases wrote them: one adapter in the settings of another."""
        adapter, settings = self.adapter, self.settings
        if self.ledger:
            adapter, settings = _LEDGERED, {"adapter": adapter, "settings": settings, "ledger": self.ledger}
        if self.is_mapped:
            inner = {"adapter": adapter, "settings": settings}
            adapter, settings = _MAPPED, {**inner, "mapping": self.mapping, "mappings": self.mappings}
        return adapter, settings

    @classmethod
    def from_wrapped(cls, adapter: str, settings: Mapping[str, object]) -> SourceSpec:
        """The source that earlier releases wrote as one adapter in the settings of another."""
        if adapter not in (_MAPPED, _LEDGERED):
            return cls(adapter, settings)
        inner = cls.from_wrapped(settings["adapter"], settings["settings"])  # type: ignore[arg-type]
        around = {key: value for key, value in settings.items() if key not in ("adapter", "settings")}
        return replace(inner, **around)  # type: ignore[arg-type]


def _around(make: Callable[[], Adapter], wrap: Callable[[Adapter], Adapter]) -> Callable[[], Adapter]:
    return lambda: wrap(make())
