"""All settings of one server."""

from __future__ import annotations

from pathlib import Path

from pydantic_settings import SettingsConfigDict

from hoglab.settings.functions import FunctionSettings
from hoglab.settings.operation import OperationSettings
from hoglab.settings.processes import ProcessSettings
from hoglab.settings.site import SiteSettings
from hoglab.settings.storage import StorageSettings

PREFIX = "HOGLAB_"


# Fields of the last base come first, in the page of reference and for validators that look at those before.
class Settings(OperationSettings, FunctionSettings, ProcessSettings, SiteSettings, StorageSettings):
    """All settings of one server. Every one can be given as ``HOGLAB_<NAME>``.

    The description of a setting without a default value ends with "Default:" and what holds then.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    @property
    def warehouse_directory(self) -> Path:
        """Directory of the files of warehouse tables."""
        return self.warehouse if self.warehouse is not None else self.data / "warehouse"
