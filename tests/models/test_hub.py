"""Downloads by name, by the package huggingface_hub, from a server on this machine."""

import hashlib
import http.server
import json
import threading

import pytest
from huggingface_hub import constants

from mytorch.models import Llama, LlamaConfig
from mytorch.models.hugging_face import find

COMMIT = "0123456789abcdef" * 2 + "01234567"


class Hub(http.server.ThreadingHTTPServer):
    """A hub with one model, owner/model.

    Attributes:
        files: content by name.
        ranges: the header Range of each request for the weights.
        damaged: whether a byte of the weights is changed on the way.
        cut: whether the next connection breaks in the middle of the weights.
    """

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ranges, self.damaged, self.cut = files, [], False, False

    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def tree(self):
        """The entries of the folder; weights are large files."""
        entries = []
        for name, content in self.files.items():
            sha1, sha256 = (hash(content).hexdigest() for hash in (hashlib.sha1, hashlib.sha256))
            entry = {"type": "file", "path": name, "size": len(content), "oid": sha1}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 100}
            entries.append(entry)
        return entries


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        _, _, rest = self.path.partition("/resolve/")
        if rest:
            return self.send_file(rest.split("/")[1])
        if "/tree/" in self.path:
            return self.send(json.dumps(self.server.tree()).encode())
        names = [{"rfilename": name} for name in self.server.files]
        self.send(json.dumps({"id": "owner/model", "sha": COMMIT, "siblings": names}).encode())

    def send_file(self, name):
        content, is_weights = self.server.files[name], name.endswith(".safetensors")
        kind = hashlib.sha256 if is_weights else hashlib.sha1
        headers = {"ETag": f'"{kind(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        asked, start = self.headers.get("Range"), 0
        if asked:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if is_weights and self.command == "GET":
            self.server.ranges.append(asked)
            if self.server.damaged:
                content = content[:-1] + bytes([content[-1] ^ 1])
        self.send(content[start:], 206 if asked else 200, headers, is_weights and self.command == "GET")

    def send(self, content, code=200, headers=(), may_break=False):
        self.send_response(code)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if may_break and self.server.cut:
            self.server.cut = False
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            return
        self.wfile.write(content)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    model = Llama(LlamaConfig(97, 32, 48, num_hidden_layers=1, num_attention_heads=2))
    model.save_pretrained(tmp_path / "model")
    server = Hub({path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()})
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(
        constants.ENDPOINT, server.url()
    )
    monkeypatch.setattr(constants, "ENDPOINT", server.url())
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield server
    server.shutdown()
    server.server_close()


def test_a_model_is_downloaded_once(hub):
    model = Llama.from_pretrained("owner/model")
    assert model.config.hidden_size == 32 and hub.ranges == [None]
    assert find("owner/model") == find("owner/model", COMMIT) and len(hub.ranges) == 1


def test_a_broken_download_continues(hub, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cut = True
    path = find("owner/model") / "model.safetensors"
    middle = len(hub.files["model.safetensors"]) // 2
    assert hub.ranges == [None, f"bytes={middle // 1000 * 1000}-"]
    assert path.read_bytes() == hub.files["model.safetensors"]


def test_a_damaged_download_is_removed(hub):
    hub.damaged = True
    with pytest.raises(OSError, match=r"model\.safetensors was damaged on its way: its SHA-256 is .*…"):
        find("owner/model")
    hub.damaged = False
    assert (find("owner/model") / "model.safetensors").read_bytes() == hub.files["model.safetensors"]
