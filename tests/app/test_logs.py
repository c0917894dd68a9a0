"""Secrets stand in no line of a log, whoever writes it."""

from __future__ import annotations

import base64
import subprocess
import sys

SECRET = "canary-of-the-logs-0042"
PROGRAM = """
import base64, logging, sys
from tollbar.app.logs import configure_logs, redact_logs
configure_logs()
import structlog
from tollbar.vault.redactor import Redactor
redactor = Redactor()
redact_logs(redactor)
redactor.add("CANARY", sys.argv[1])
log = structlog.get_logger("tollbar.test")
log.info("an event", value=sys.argv[1], nested={"deep": [f"Bearer {sys.argv[1]}"]})
log.info("encoded", value=base64.b64encode(f"user:{sys.argv[1]}".encode()).decode())
try:
    raise ValueError(f"refused: {sys.argv[1]}")
except ValueError:
    log.exception("it failed")
logging.getLogger("some.library").error("connecting with %s", sys.argv[1])
"""


def test_no_line_of_a_log_has_a_secret_in_it() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, SECRET], capture_output=True, text=True, check=True)

    lines = done.stderr.splitlines()
    assert len(lines) == 4
    assert all("[redacted:CANARY]" in line for line in lines)
    assert SECRET not in done.stderr
    assert base64.b64encode(SECRET.encode()).decode()[:16] not in done.stderr
