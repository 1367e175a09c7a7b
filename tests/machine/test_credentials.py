"""No secret in a record: addresses, messages, and every artefact of a run against an endpoint that repeats its key."""

import base64
import html
import json
import re
import threading
from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore import cli
from steadyscore.engines import EngineOptions, http
from steadyscore.engines.kinds import open_engine, parse_address
from steadyscore.errors import InputError
from steadyscore.machine.credentials import HIDDEN, check_credentials, hide, redact, without_credentials
from steadyscore.machine.places import parse_place
from steadyscore.runs.folder import find_run
from tests.engines.test_http import chat, rerank, shown
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection

SECRET = "sk-planted/9f8e7d6c5b4a"
CARRIED = [
    "rerank+cohere:http://user:PWSECRET9@127.0.0.1:1/ok",
    "rerank+cohere:m@http://PWSECRET9@127.0.0.1:1/ok",
    "rerank:http://user:PW/SECRET9@127.0.0.1:1/ok",
    "rerank:http://127.0.0.1:1/ok?api_key=PWSECRET9",
    "rerank:http://127.0.0.1:1/ok?PWSECRET9",
    "openai:m@https://h/v1?api-version=1&code=PWSECRET9",
    "openai:m@https://h/v1#PWSECRET9",
    "http://user:PWSECRET9@h",
    "command:python score.py https://u:PWSECRET9@h/x",
    "command:python score.py https://h/x?token=PWSECRET9",
]


@pytest.mark.parametrize("address", CARRIED)
def test_an_address_that_carries_a_secret_is_refused_and_not_repeated(address):
    for opened in (parse_address, open_engine):
        with pytest.raises(InputError, match="STEADYSCORE_API_KEY") as refusal:
            opened(address)
        assert "SECRET9" not in str(refusal.value)


@pytest.mark.parametrize(
    "address",
    [
        "openai:m@https://h.example/v1?api-version=2024-10-21",
        "rerank:https://api.cloudflare.com/ai/run/@cf/baai/bge-reranker-base",
        "rerank:http://[::1]:8080/rerank",
        "command:python score.py https://h/x?lang=en",
        "hf:some/model",
    ],
)
def test_an_address_without_a_secret_passes_as_it_is(address):
    check_credentials(address)
    if not address.startswith("command:"):
        assert without_credentials(address) == address


@given(st.from_regex(r"[A-Za-z0-9]{8,20}", fullmatch=True))
def test_what_a_url_carries_is_never_in_what_is_left(secret):
    secret = f"zq{secret}qz"
    for address in (f"rerank:http://u:{secret}@h/x", f"openai:m@https://{secret}@h", f"rerank:http://h/x?key={secret}#{secret}"):
        assert secret not in without_credentials(address)
        assert secret not in redact(f"cannot open {address} today")


KEY = 'sk-planted+9f8e/7d6c"5b&4a'
SPELLED = {
    "plain": KEY,
    "upper": KEY.upper(),
    "json": json.dumps(KEY),
    "json-slashes": KEY.replace('"', '\\"').replace("/", "\\/"),
    "json-numbers": "".join(f"\\u{ord(c):04x}" for c in KEY),
    "json-numbers-of-signs": "".join(c if c.isalnum() else f"\\u{ord(c):04X}" for c in KEY),
    "url": quote(KEY),
    "url-slashes": quote(KEY, safe=""),
    "url-numbers": "".join(f"%{ord(c):02X}" for c in KEY),
    "html": html.escape(KEY),
    "html-numbers": "".join(f"&#{ord(c)};" for c in KEY),
    "html-hexadecimal": "".join(f"&#x{ord(c):X};" for c in KEY),
    "base64": base64.b64encode(KEY.encode()).decode(),
    "base64-url": base64.urlsafe_b64encode(KEY.encode()).decode(),
    "base64-header": base64.b64encode(f"Bearer {KEY}, model".encode()).decode(),
    "base64-login": base64.b64encode(f"me:{KEY}".encode()).decode(),
    "hexadecimal": KEY.encode().hex(),
    "hexadecimal-colons": KEY.encode().hex(":").upper(),
    "program-numbers": "".join(f"\\x{ord(c):02x}" for c in KEY),
    "html-padded": "".join(f"&#{ord(c):04};" for c in KEY),
    "lines": f"{KEY[:9]}\n  {KEY[9:17]}\r\n{KEY[17:]}",
    "lines-in-json": json.dumps(f"{KEY[:9]}\n{KEY[9:]}"),
    "spaced": " ".join(KEY),
    "base64-lines": "\n".join(re.findall(".{1,10}", base64.b64encode(KEY.encode()).decode())),
    "base64-body": base64.b64encode(f"key={KEY}&x=1".encode()).decode(),
}


@pytest.mark.parametrize("spelling", SPELLED)
def test_a_whole_key_is_hidden_however_it_is_written(spelling):
    said = hide(f"begin {SPELLED[spelling]} end", KEY)
    assert said.startswith("begin ")
    assert said.endswith(" end")
    assert HIDDEN in said
    left = "".join(said.split()[1:-1]).replace(HIDDEN, "")
    assert not any(part in left.lower() for part in ("planted", "9f8e", "7d6c", *pieces(SPELLED[spelling])))


def pieces(text, length=12):
    """Parts of an encoded text that still hold several characters of the key."""
    middle = len(text) // 2
    return {text[middle - length : middle].lower(), text[middle : middle + length].lower()} - {""}


def test_a_text_without_the_key_stays_as_it_is():
    text = json.dumps({"results": ["sk-planted", "9f8e", base64.b64encode(b"another key altogether").decode()]})
    assert hide(text, KEY) == text


@pytest.mark.parametrize("name", ["COHERE_API_KEY", "MYAPIKEY"])
def test_an_address_that_holds_the_value_of_a_key_is_refused(name, monkeypatch):
    monkeypatch.setenv(name, SECRET)
    with pytest.raises(InputError, match=rf"holds the value of \${name}") as refusal:
        parse_address(f"command:python score.py --key {SECRET}")
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("address", CARRIED[:6])
def test_a_command_writes_nothing_and_says_no_secret(address, tmp_path, capsys):
    assert cli.main(["audit", "--scorer", address, "--data", "passages", "--out", str(tmp_path / "run")]) == 1
    with pytest.raises(SystemExit):
        cli.main(["audit", "--scorer", "synthetic:none", "--queries", address])
    said = capsys.readouterr()
    assert "SECRET9" not in said.out + said.err
    assert not (tmp_path / "run").exists()


def artefacts(*folders):
    return b"\n".join(file.read_bytes() + str(file).encode() for f in folders for file in f.rglob("*") if file.is_file())


def test_no_artefact_of_a_run_holds_a_secret_that_the_endpoint_repeats(tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STEADYSCORE_API_KEY", SECRET)
    pools = write_collection(tmp_path / "pools.jsonl", some_instances(queries=4, candidates=3))

    def answer(path, body):
        return chat(path, body) | {"echo": f"Bearer {SECRET}"}

    with Server(answer) as server:
        server.refusal = f"{'x' * 185} Bearer {SECRET} at https://u:PWSECRET9@h/?k=QSECRET9"
        server.always = lambda body: "400" if "thing 1 number" in str(body) else None
        server.faults = ["500", "429"]
        words = ["audit", "--scorer", f"openai:m@{server.url}/v1", "--data", str(pools), "--permutations", "2"]
        assert cli.main([*words, "--out", str(tmp_path / "run")]) == 4
        assert server.keys[0] == f"Bearer {SECRET}"
    said = capfd.readouterr()
    everything = artefacts(tmp_path / "run", tmp_path / "cache") + (said.out + said.err + caplog.text).encode()
    assert find_run(tmp_path / "run").record.failed[0].query_id == "q1"
    for secret in (SECRET, json.dumps(SECRET)[1:-1], "sk-planted", "9f8e7d6c5b4a", "PWSECRET9", "QSECRET9"):
        assert secret.encode() not in everything
    assert any((tmp_path / "cache" / "responses").rglob("*.json"))


def test_an_endpoint_is_known_by_its_address():
    with Server(rerank) as server:
        assert open_engine(f"rerank+tei:{server.url}/rerank", EngineOptions()).endpoint.base == f"{server.url}/rerank"
    assert open_engine("synthetic:none").endpoint is None


def test_windows_refused_at_once_for_a_setting_are_all_asked_again(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    pools = write_collection(tmp_path / "pools.jsonl", some_instances(queries=3, candidates=30))
    at_once = threading.Barrier(2)

    def refuse(body):
        if "max_tokens" not in body:
            return None
        with suppress(threading.BrokenBarrierError):
            at_once.wait(5)
        return "400"

    with Server(chat) as server:
        server.always = refuse
        server.refusal = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        words = ["audit", "--scorer", f"openai:m@{server.url}/v1", "--data", str(pools), "--no-report"]
        assert cli.main([*words, "--out", str(tmp_path / "run")]) == 0
        refused = [body for body in server.requests if "max_tokens" in body]
        assert 1 < len(refused) <= 8
        assert all(shown(body) for body in refused)


def test_a_secret_of_one_of_several_servers_is_not_repeated():
    address = "vllm:m@http://a:8000/v1,http://user:PWSECRET9@b:8000/v1"
    assert "SECRET9" not in without_credentials(address)
    with pytest.raises(InputError) as refusal:
        check_credentials(address)
    assert "SECRET9" not in str(refusal.value)


def test_a_store_s_key_with_a_slash_is_refused():
    with pytest.raises(InputError) as refusal:
        parse_place("s3://AKIA123:wJal/K7MDENG@bucket/run")
    assert "K7MDENG" not in str(refusal.value)
