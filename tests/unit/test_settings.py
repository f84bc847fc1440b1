"""Settings: which source wins, and what a mistake is told."""

from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.overlay.config import Config
from anabranch.overlay.errors import UsageError
from anabranch.overlay.qos import Role, Variant
from anabranch.transport.settings import Settings, load_settings

Write = Callable[[str | bytes], Path]


def load(toml: Path | None = None, environ: dict[str, str] | None = None, **options: object) -> Settings:
    return load_settings(file=toml, environ=environ or {}, options=options)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str | bytes) -> Path:
        path = tmp_path / "peer.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def complaint(*args: object, **kwargs: object) -> str:
    with pytest.raises(UsageError) as caught:
        load(*args, **kwargs)  # type: ignore[arg-type]
    return str(caught.value)


def test_nothing_given_is_the_defaults() -> None:
    assert load() == Settings()
    assert load().config == Config()


def test_a_file_sets_everything(write: Write) -> None:
    path = write(
        """
        name = "tower-7"
        listen = ["tcp://0.0.0.0:7400", "ipc:///tmp/tower"]
        join = ["tcp://10.0.0.2:7400"]
        advertise = ["tcp://tower.example:7400"]
        beacon = "udp://239.1.2.3:7399"
        beacon_unicast = ["10.0.0.9:7399"]
        log_dir = "logs"
        preset = "lan"
        log_format = "json"
        log_level = "DEBUG"
        [config]
        probe_interval_s = 2
        links_max = 9
        role = "client"
        variant = "dp"
        """
    )
    settings = load(path)
    assert settings == Settings(
        name="tower-7",
        listen=["tcp://0.0.0.0:7400", "ipc:///tmp/tower"],
        join=["tcp://10.0.0.2:7400"],
        advertise=["tcp://tower.example:7400"],
        beacon="udp://239.1.2.3:7399",
        beacon_unicast=["10.0.0.9:7399"],
        log_dir="logs",
        preset="lan",
        log_format="json",
        log_level="debug",
        config=Config.lan(probe_interval_s=2.0, links_max=9, role=Role.CLIENT, variant=Variant.DP),
    )


def test_options_beat_variables_beat_the_file(write: Write) -> None:
    path = write(
        'name = "f"\nlog_dir = "f"\nlog_level = "error"\n'
        "[config]\nlinks_max = 1\nrecords_max = 1\ncache_max = 1"
    )
    environ = {
        "ANABRANCH_NAME": "e",
        "ANABRANCH_LOG_DIR": "e",
        "ANABRANCH_CONFIG_LINKS_MAX": "2",
        "ANABRANCH_CONFIG_RECORDS_MAX": "2",
        "HOME": "/somewhere",
    }
    settings = load(path, environ, name="o", log_dir=None, set=["links_max=3", "links_max = 4"])
    assert (settings.name, settings.log_dir, settings.log_level) == ("o", "e", "error")
    config = settings.config
    assert (config.links_max, config.records_max, config.cache_max) == (4, 2, 1)


def test_the_file_may_be_named_by_a_variable_and_the_argument_beats_it(write: Write, tmp_path: Path) -> None:
    path = write('name = "from-variable"')
    assert load(None, {"ANABRANCH_FILE": str(path)}).name == "from-variable"
    other = tmp_path / "other.toml"
    other.write_text('name = "from-argument"')
    assert load(other, {"ANABRANCH_FILE": str(path)}).name == "from-argument"
    assert load(None, {"ANABRANCH_FILE": ""}).name is None


def test_texts_become_lists_numbers_and_nothing() -> None:
    environ = {
        "ANABRANCH_LISTEN": "tcp://127.0.0.1:1, tcp://[::1]:2,",
        "ANABRANCH_JOIN": "",
        "ANABRANCH_LOG_DIR": "",
        "ANABRANCH_BEACON": "",
        "ANABRANCH_CONFIG_PROBE_INTERVAL_S": "1.5",
        "ANABRANCH_CONFIG_VARIANT": "DP",
    }
    settings = load(None, environ)
    assert settings.listen == ["tcp://127.0.0.1:1", "tcp://[::1]:2"]
    assert settings.join == []
    assert settings.log_dir is None
    assert settings.beacon == "", "off, which is not the same as unsaid"
    assert (settings.config.probe_interval_s, settings.config.variant) == (1.5, Variant.DP)


def test_options_take_paths_tuples_and_comma_separated_texts(tmp_path: Path) -> None:
    settings = load(log_dir=tmp_path, listen=("tcp://127.0.0.1:1",), join="tcp://a:1,tcp://b:2")
    assert settings.log_dir == str(tmp_path)
    assert settings.listen == ["tcp://127.0.0.1:1"]
    assert settings.join == ["tcp://a:1", "tcp://b:2"]


def test_a_preset_from_a_higher_source_keeps_single_settings_of_a_lower_one(write: Write) -> None:
    path = write('preset = "lan"\n[config]\nlinks_max = 5')
    assert load(path, preset="harmony").config == Config.harmony(links_max=5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('lisen = ["tcp://h:1"]', ["'lisen'", "did you mean 'listen'?"]),
        ("zzz = 1", ["'zzz'", "one of name, listen, join"]),
        ("probe_interval_s = 1", ["'probe_interval_s'", "below a line [config]"]),
        (
            "[config]\nprobe_intervall_s = 1",
            ["[config]", "'probe_intervall_s'", "did you mean 'probe_interval_s'?"],
        ),
        ('[config]\nlisten = ["tcp://h:1"]', ["[config]", "'listen'", "above"]),
        ("config = 5", ["config = 5", "expected a table"]),
        ("name = 5", ["name = 5", "expected a text"]),
        ('listen = "tcp://h:1"', ["listen = 'tcp://h:1'", "expected a list of texts"]),
        ("listen = [1]", ["listen = [1]", "expected a list of texts"]),
        ('preset = "moon"', ["preset = 'moon'", "expected one of local, lan, wan, harmony"]),
        ('log_format = "xml"', ["log_format = 'xml'", "expected one of console, json"]),
        ('[config]\nprobe_interval_s = "1"', ["probe_interval_s = '1'", "expected a number"]),
        ("[config]\nprobe_interval_s = true", ["probe_interval_s = True", "expected a number"]),
        ("[config]\nprobe_interval_s = nan", ["probe_interval_s = nan", "finite"]),
        ("[config]\nlinks_max = 1.5", ["links_max = 1.5", "expected a whole number"]),
        ('[config]\nrole = "boss"', ["role = 'boss'", "expected one of peer, client"]),
        ("[config]\nlinks_max = -1", ["links_max = -1", "must not be negative"]),
        ("[config]\ndown_after_s = 0.1", ["down_after_s = 0.1", "larger than suspect_after_s"]),
        ('name = "no spaces"', ["'no spaces'", "letters, digits"]),
        ('listen = ["tcp://h"]', ["listen", "'tcp://h'", "tcp://HOST:PORT"]),
        ('join = ["tcp://*:7400"]', ["join", "'tcp://*:7400'", "one host"]),
        ('advertise = ["h:1"]', ["advertise", "'h:1'"]),
        ('beacon = "udp://10.0.0.1:7"', ["beacon", "'udp://10.0.0.1:7'", "multicast"]),
        ('beacon_unicast = ["h"]', ["beacon_unicast", "'h'", "HOST:PORT"]),
    ],
)
def test_a_mistake_in_the_file_names_file_key_and_fix(write: Write, text: str, said: list[str]) -> None:
    path = write(text)
    message = complaint(path)
    for part in [str(path), *said]:
        assert part in message


@pytest.mark.parametrize(
    ("variable", "text", "said"),
    [
        ("ANABRANCH_LISEN", "x", "did you mean ANABRANCH_LISTEN?"),
        ("ANABRANCH_PROBE_INTERVAL_S", "1", "did you mean ANABRANCH_CONFIG_PROBE_INTERVAL_S?"),
        ("ANABRANCH_CONFIG_LINK_MAX", "1", "did you mean ANABRANCH_CONFIG_LINKS_MAX?"),
        ("ANABRANCH_CONFIG", "peer.toml", "ANABRANCH_FILE"),
        ("ANABRANCH_QQQQQQQQQQ", "1", "one of ANABRANCH_NAME, ANABRANCH_LISTEN"),
        ("ANABRANCH_CONFIG_PROBE_INTERVAL_S", "fast", "probe_interval_s = 'fast': expected a number"),
        ("ANABRANCH_CONFIG_PROBE_INTERVAL_S", "inf", "finite"),
        ("ANABRANCH_CONFIG_LINKS_MAX", "", "links_max = '': expected a whole number"),
        ("ANABRANCH_LISTEN", "tcp://h:1,nonsense", "'nonsense'"),
        ("ANABRANCH_LOG_LEVEL", "loud", "expected one of debug, info, warning, error"),
    ],
)
def test_a_mistake_in_a_variable_names_it(variable: str, text: str, said: str) -> None:
    message = complaint(None, {variable: text})
    assert variable in message
    assert said in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"set": ["probe_interval_s"]}, ["--set 'probe_interval_s'", "KEY=VALUE"]),
        ({"set": ["probe=1"]}, ["--set 'probe=1'", "unknown key 'probe'"]),
        ({"set": ["links_max=many"]}, ["--set", "links_max = 'many'", "a whole number"]),
        ({"set": ["down_after_s=0.1"]}, ["--set", "down_after_s = 0.1", "suspect_after_s"]),
        ({"beacon_unicast": ["h"]}, ["--beacon-unicast", "'h'"]),
        ({"listne": ["x"]}, ["--listne", "did you mean 'listen'?"]),
        ({"preset": "moon"}, ["--preset", "'moon'", "local, lan, wan, harmony"]),
    ],
)
def test_a_mistake_in_an_option_names_it(options: dict[str, object], said: list[str]) -> None:
    message = complaint(**options)
    for part in said:
        assert part in message


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b'name = "a"\nlisten = [\n', "line 2"),
        (b'name = "a"\n\nlisten == 1\n', "line 3"),
        (b'name = "a"\nname = "b"\n', "line 2"),
        (b'name = "a"\n# \xff\n', "line 2"),
    ],
)
def test_a_broken_file_names_path_and_line(write: Write, content: bytes, line: str) -> None:
    path = write(content)
    message = complaint(path)
    assert str(path) in message
    assert line in message


def test_a_file_that_is_not_there_names_its_path(tmp_path: Path) -> None:
    assert str(tmp_path / "gone.toml") in complaint(tmp_path / "gone.toml")
    assert str(tmp_path) in complaint(tmp_path), "a directory"


def test_settings_made_by_hand_are_checked_too() -> None:
    with pytest.raises(UsageError, match="nonsense"):
        Settings(listen=["nonsense"])


def test_what_is_chosen_later_about_trust_overrules_all_of_what_was_before(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text('identity = "from-file"')
    by_file = load_settings(file=file, environ={}, options={})
    by_variable = load_settings(file=file, environ={"ANABRANCH_OPEN": "1"}, options={})
    by_option = load_settings(file=None, environ={"ANABRANCH_OPEN": "1"}, options={"identity": Path("x")})
    assert (by_file.identity, by_file.open) == ("from-file", False)
    assert (by_variable.identity, by_variable.open) == (None, True)
    assert (by_option.identity, by_option.open) == ("x", False)
