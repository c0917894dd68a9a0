"""A small S3-compatible server on this machine: objects, ranges, uploads in parts, and the errors that clients meet.

It keeps objects in memory and knows one access key. The client that speaks to it is the product's own.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

ACCESS_KEY = "test-access-key"
_DATE = "Tue, 01 Dec 2026 00:00:00 GMT"


@dataclass
class Bucket:
    """A bucket and the variables with which a process reaches it."""

    name: str
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    endpoint: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": "test-secret",
            "AWS_REGION": "us-east-1",
        }


@contextmanager
def bucket(name: str) -> Iterator[Bucket]:
    """A fresh bucket on a server of its own, which ends with the block."""
    made = Bucket(name)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"bucket": made}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    made.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: Bucket

    def log_message(self, *args: object) -> None:
        """The test's output is its own."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", headers.pop("Content_Length", str(len(body))))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _fail(self, status: int, code: str) -> None:
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self._answer(status, text.encode(), Content_Type="application/xml")

    def _request(self) -> tuple[str, dict[str, str], bytes] | None:
        """Returns key, query and body; or None, and has answered."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        name, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if f"Credential={ACCESS_KEY}/" not in self.headers.get("Authorization", ""):
            self._fail(403, "InvalidAccessKeyId")
        elif name != self.bucket.name:
            self._fail(404, "NoSuchBucket")
        else:
            return key, query, body
        return None

    def do_PUT(self) -> None:
        request = self._request()
        if request is None:
            return
        key, query, body = request
        if "uploadId" in query:
            self.bucket.uploads[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.bucket.objects[key] = body
        self._answer(200, ETag=_etag(body))

    def do_POST(self) -> None:
        request = self._request()
        if request is None:
            return
        key, query, _ = request
        if "uploads" in query:
            upload = str(next(self.bucket.numbers))
            self.bucket.uploads[upload] = {}
            inside = f"<Bucket>{self.bucket.name}</Bucket><Key>{key}</Key><UploadId>{upload}</UploadId>"
            self._answer(200, f"<InitiateMultipartUploadResult>{inside}</InitiateMultipartUploadResult>".encode())
            return
        parts = self.bucket.uploads.pop(query["uploadId"])
        data = b"".join(parts[number] for number in sorted(parts))
        self.bucket.objects[key] = data
        inside = f"<Bucket>{self.bucket.name}</Bucket><Key>{key}</Key><ETag>{_etag(data)}</ETag>"
        self._answer(200, f"<CompleteMultipartUploadResult>{inside}</CompleteMultipartUploadResult>".encode())

    def do_DELETE(self) -> None:
        request = self._request()
        if request is None:
            return
        key, query, _ = request
        if "uploadId" in query:
            self.bucket.uploads.pop(query["uploadId"], None)
        else:
            self.bucket.objects.pop(key, None)
        self._answer(204)

    def do_GET(self) -> None:
        request = self._request()
        if request is None:
            return
        data = self.bucket.objects.get(request[0])
        if data is None:
            self._fail(404, "NoSuchKey")
            return
        facts = {"ETag": _etag(data), "Last_Modified": _DATE, "Accept_Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            self._answer(200, data, **facts)
            return
        start, end = int(asked[1]), min(int(asked[2] or len(data)), len(data) - 1)
        if start >= len(data):
            self._fail(416, "InvalidRange")
            return
        self._answer(206, data[start : end + 1], Content_Range=f"bytes {start}-{end}/{len(data)}", **facts)

    def do_HEAD(self) -> None:
        request = self._request()
        if request is None:
            return
        data = self.bucket.objects.get(request[0])
        if data is None:
            self._answer(404)
        else:
            self._answer(200, Content_Length=str(len(data)), ETag=_etag(data), Last_Modified=_DATE)


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
