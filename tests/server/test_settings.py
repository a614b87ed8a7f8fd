"""Settings: flags, environment and file say the same things; which of them wins, and what is refused by which name."""

from pathlib import Path
from typing import Any

import click.testing
import pytest

from gradwire_server.app.cli import serve
from gradwire_server.app.configuration import PREFIX, ConfigurationError, default_text, flag, load, variable
from gradwire_server.app.settings import Settings
from gradwire_server.common.limits import MIB, Limits


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of whoever runs the tests."""
    for name in Settings.model_fields:
        monkeypatch.delenv(variable(name), raising=False)


def toml(folder: Path, text: str) -> str:
    path = folder / "gradwire.toml"
    path.write_text(text)
    return str(path)


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = toml(tmp_path, "workers = 1\nmax_sessions = 1\nmax_session_tensors = 1\n")
    monkeypatch.setenv("GRADWIRE_WORKERS", "2")
    monkeypatch.setenv("GRADWIRE_MAX_SESSIONS", "2")
    settings = load({"workers": 3}, file)
    assert (settings.workers, settings.max_sessions, settings.max_session_tensors) == (3, 2, 1)
    assert settings.port == Settings.model_fields["port"].default


def test_every_setting_can_be_given_in_each_way_and_means_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Settings()
    for name in Settings.model_fields:
        value = getattr(plain, name)
        text = str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')
        assert load({}, toml(tmp_path, f"{name} = {text}")).model_dump() == plain.model_dump()
        monkeypatch.setenv(variable(name), str(value))
        assert load({}).model_dump() == plain.model_dump()
        monkeypatch.delenv(variable(name))


@pytest.mark.parametrize(
    ("given", "meant"), [("8MiB", 8 * MIB), ("2 MB", 2_000_000), ("123456", 123456), (77777, 77777)]
)
def test_bytes_are_numbers_or_have_units(given: Any, meant: int) -> None:
    told = load({"max_message_bytes": given})
    assert (told.max_message_bytes, type(told.limits().max_message_bytes)) == (meant, int)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_byte = 1", "'max_byte'; did you mean max_bytes?"),
        ("max-bytes = 1", "'max-bytes'; did you mean max_bytes?"),
        ("zebra = 1", "'zebra'"),
        ("[server]\nport = 0", "'server'"),
        ("port = 99999", "gradwire.toml: port: "),
        ('port = "x"', "gradwire.toml: port: "),
        ('max_bytes = "4 parsecs"', "gradwire.toml: max_bytes: "),
        ("port = ", "gradwire.toml: "),
    ],
)
def test_what_is_wrong_in_a_file_is_refused_by_its_name(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load({}, toml(tmp_path, text))
    assert told in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        load({}, str(tmp_path / "none.toml"))


def test_a_wrong_variable_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_PORT", "tcp://10.0.0.1:50051")
    with pytest.raises(ConfigurationError, match=r"^GRADWIRE_PORT: .*'tcp://10.0.0.1:50051'"):
        load({})
    assert load({"port": 0}).port == 0  # a flag does not care what the environment says


def test_a_misspelt_variable_is_refused_and_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for other in (
        "TOKEN",
        "CA",
        "CERT",
        "KEY",
        "TLS",
        "ADDRESS",
        "SERVER_NAME",
        "CPU_PORT",
        "SERVICE_HOST",
        "FUZZ_SEED",
    ):
        monkeypatch.setenv(f"{PREFIX}{other}", "x")
    load({})
    monkeypatch.setenv("GRADWIRE_MAX_SESION_BYTES", "1")
    with pytest.raises(ConfigurationError, match="did you mean GRADWIRE_MAX_SESSION_BYTES"):
        load({})


def test_an_empty_variable_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADWIRE_PORT", "")
    assert load({}).port == 50051


def test_help_has_every_setting_with_its_default() -> None:
    told = click.testing.CliRunner().invoke(serve, ["--help"], terminal_width=400)
    assert told.exit_code == 0
    flat = " ".join(told.output.partition("Options:")[2].split())
    for name, field in Settings.model_fields.items():
        _, found, after = flat.partition(f" {flag(name)} ")
        default = "" if field.annotation is bool or not default_text(name) else f" [default: {default_text(name)}]"
        assert found, name
        assert f" {field.description}{default} " in after[:600], name


@pytest.mark.parametrize("name", [name for name in Settings.model_fields if name.endswith("_bytes")])
def test_every_size_takes_a_unit(name: str, tmp_path: Path) -> None:
    assert getattr(load({}, toml(tmp_path, f'{name} = "256MiB"')), name) == 256 * MIB


@pytest.mark.parametrize(
    ("name", "text"),
    [("local_streams", "true"), ("insecure_bind", "false"), ("grace_seconds", "10"), ("host", "127.0.0.1")],
)
def test_a_default_is_shown_as_it_would_be_given(name: str, text: str) -> None:
    assert default_text(name) == text


def test_a_log_without_a_directory_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^--durability=log needs --state-dir$"):
        load({"durability": "log"})


def test_a_snapshot_store_needs_a_state_directory_and_has_no_log() -> None:
    assert load({"snapshot_store": "a:B?c=d", "state_dir": "x"}).snapshot_store == "a:B?c=d"
    with pytest.raises(ConfigurationError, match=r"^--snapshot-store needs --state-dir"):
        load({"snapshot_store": "a:B"})
    with pytest.raises(ConfigurationError, match=r"^--snapshot-store and --durability=log exclude each other"):
        load({"snapshot_store": "a:B", "state_dir": "x", "durability": "log"})


def test_settings_and_limits_have_the_same_defaults() -> None:
    assert Settings().limits() == Limits()
