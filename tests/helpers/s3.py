"""A local S3 server (moto's) for the tests of object stores, and commands that run beside it in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEYS = {
    "AWS_ACCESS_KEY_ID": "testing-access-key",
    "AWS_SECRET_ACCESS_KEY": "testing-secret-key",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@contextmanager
def serving_s3(bucket: str) -> Iterator[tuple[Any, dict[str, str]]]:
    """A client of a server that has one bucket, and the environment that leads others to it."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        environment = KEYS | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
        client = boto3.client(
            "s3",
            endpoint_url=environment["AWS_ENDPOINT_URL"],
            aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            region_name=KEYS["AWS_DEFAULT_REGION"],
        )
        client.create_bucket(Bucket=bucket)
        yield client, environment
    finally:
        server.stop()


def begin(words: str, cache: Path, folder: Path, before: str = "") -> subprocess.Popen[str]:
    """A command in a process that has a cache of its own, as one on another machine would; `before` is run in it first."""
    program = f"import sys\n{before}\nfrom steadyscore.cli import main\nsys.exit(main({words.split()!r}))"
    environment = os.environ | {"STEADYSCORE_CACHE": str(cache), "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", program], cwd=folder, env=environment, **pipes)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and all that it said."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out + err
