"""Where settings come from: a flag wins over the environment, that over the file of --config, that over the default.

What is wrong is refused, by the name under which it was given. So is a name that nobody knows, with the nearest there
is; of variables only those that are nearly a setting's, for clients and containers have others that begin alike.
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
# What clients, the health check and the container's files read: these are nobody's misspelt setting.
_OTHERS = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "ADDRESS", "CA", "CERT", "CONFIG", "CPU_PORT", "CUDA", "GPU_PORT", "KEY", "LOCAL_STREAM", "SERVER_NAME",
        "SHARED_MEMORY", "TLS", "TLS_DIR", "TOKEN",
    )
)  # fmt: skip
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_LIKE = 0.8  # from here on, of 1, a name is taken for a misspelt one


class ConfigurationError(Exception):
    """Settings that cannot be taken; the message names each and where it was given."""


def flag(name: str) -> str:
    """A setting's flag."""
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """A setting's environment variable."""
    return f"{PREFIX}{name.upper()}"


def shown(name: str) -> str:
    """A setting's default as it may be given: "8MiB"; empty where there is nothing to say."""
    default = Settings.model_fields[name].default
    if Settings.model_fields[name].annotation is ByteSize:
        for unit, size in _UNITS:
            if default >= size and default % size == 0:
                return f"{default // size}{unit}"
    return f"{default:g}" if isinstance(default, float) else str(default).lower() if default is False else str(default)


def load(flags: Mapping[str, Any], file: str = "") -> Settings:
    """The settings, of those given as flags, the environment and the TOML file, if there is one.

    Raises ConfigurationError.
    """
    _check_variables()
    told = _keys(file) if file else {}

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
    raise ConfigurationError("; ".join(_said(problem, flags, file, told) for problem in problems))


def _said(problem: Any, flags: Mapping[str, Any], file: str, told: Mapping[str, Any]) -> str:
    """A problem, and the name under which its setting was given."""
    message = problem["msg"].removeprefix("Value error, ")
    if not problem["loc"]:
        return str(message)
    name = str(problem["loc"][0])
    if name in flags:
        source = flag(name)
    elif os.environ.get(variable(name)):
        source = variable(name)
    elif name in told:
        source = f"{file}: {name}"
    else:
        source = name
    return f"{source}: {message}, not {problem['input']!r}"


def _keys(file: str) -> dict[str, Any]:
    """What the file says. Raises ConfigurationError: it cannot be read, is no TOML, or has a key that is no setting."""
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
    """Raises ConfigurationError for a variable that is nearly a setting's."""
    known = {variable(name): name for name in Settings.model_fields}
    for given in os.environ:
        if given.startswith(PREFIX) and given not in known and given not in _OTHERS:
            close = get_close_matches(given.removeprefix(PREFIX).lower(), Settings.model_fields, 1, _LIKE)
            if close:
                raise ConfigurationError(f"{given} is no setting's variable; did you mean {variable(close[0])}?")
