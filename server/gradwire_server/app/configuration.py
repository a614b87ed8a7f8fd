"""Configuration: loads settings. Flags override the environment, which overrides --config's file, then defaults.

Errors name the flag, variable or key that gave the value. Unknown keys are refused, with the nearest setting's name.
An unknown variable is refused only if it resembles a setting's, since clients and containers use the same prefix.
"""

import os
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ByteSize, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, TomlConfigSettingsSource

from gradwire_server.app.settings import PREFIX, Settings

CONFIG = f"{PREFIX}CONFIG"
# Variables of clients, the health check and the container's files; they are no misspelt settings.
_OTHERS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "ADDRESS", "CA", "CERT", "CONFIG", "CPU_PORT", "CUDA", "GPU_PORT", "KEY", "LOCAL_STREAM", "SERVER_NAME",
        "SHARED_MEMORY", "TLS", "TLS_DIR", "TOKEN",
    )
)  # fmt: skip
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_LIKE = 0.8  # similarity, 0 to 1, from which a variable counts as misspelt


class ConfigurationError(Exception):
    """Invalid settings; the message names each one and its source."""


def flag(name: str) -> str:
    """A setting's flag."""
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """A setting's environment variable."""
    return f"{PREFIX}{name.upper()}"


def default_text(name: str) -> str:
    """A setting's default as the user would write it, such as "8MiB"; may be empty."""
    default = Settings.model_fields[name].default
    if Settings.model_fields[name].annotation is ByteSize:
        for unit, size in _UNITS:
            if default >= size and default % size == 0:
                return f"{default // size}{unit}"
    if isinstance(default, bool):
        return str(default).lower()  # as TOML writes it
    return f"{default:g}" if isinstance(default, float) else str(default)


def load(flags: Mapping[str, Any], file: str = "") -> Settings:
    """Load the settings from flags, the environment and the TOML file, if there is one.

    Raises ConfigurationError.
    """
    _check_variables()
    from_file = _keys(file) if file else {}

    class Sourced(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            files = (TomlConfigSettingsSource(settings_cls, Path(file)),) if file else ()
            return init_settings, env_settings, *files

    try:
        return Sourced(**flags)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)
    raise ConfigurationError("; ".join(_message(problem, flags, file, from_file) for problem in problems))


def _message(problem: Any, flags: Mapping[str, Any], file: str, from_file: Mapping[str, Any]) -> str:
    """The message of a problem, with the flag, variable or key that gave the value."""
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return str(message)
    name = str(problem["loc"][0])
    if name in flags:
        source = flag(name)
    elif os.environ.get(variable(name)):
        source = variable(name)
    elif name in from_file:
        source = f"{file}: {name}"
    else:
        source = name
    return f"{source}: {message}, not {problem['input']!r}"


def _keys(file: str) -> dict[str, Any]:
    """The file's keys. Raises ConfigurationError for an unreadable file, invalid TOML or an unknown key."""
    try:
        found = TomlConfigSettingsSource(Settings, Path(file))
        if not Path(file).is_file():
            raise OSError("there is no such file")
    except (OSError, ValueError) as error:  # TOMLDecodeError is a ValueError
        raise ConfigurationError(f"{file}: {error}") from None
    keys = found.toml_data
    unknown = [
        f"{file}: there is no setting {key!r}{_nearest(key)}" for key in keys if key not in Settings.model_fields
    ]
    if unknown:
        raise ConfigurationError("; ".join(unknown))
    return keys


def _nearest(key: str) -> str:
    close = get_close_matches(key.lower().replace("-", "_"), Settings.model_fields, 1)
    return f"; did you mean {close[0]}?" if close else ""


def _check_variables() -> None:
    """Check for misspelt variables. Raises ConfigurationError."""
    known = {variable(name): name for name in Settings.model_fields}
    for given in os.environ:
        if given.startswith(PREFIX) and given not in known and given not in _OTHERS:
            close = get_close_matches(given.removeprefix(PREFIX).lower(), Settings.model_fields, 1, _LIKE)
            if close:
                raise ConfigurationError(f"{given} is no setting's variable; did you mean {variable(close[0])}?")
