"""Model calls from inside real sandboxes: a listener takes the key of its own Trial alone, until the sandbox ends."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.gateway.world import StandIn, script, world_of

from tollbar.gateway.prices import PriceBook
from tollbar.sandboxes.interface import Form, Network

pytestmark = pytest.mark.forms(Form.HELD)

TURN = '[[case.turn]]\ntext = "All done."\nusage = { input = 1000, cached = 400, output = 50 }\n'
COST_PUSD = 600 * 250_000 + 400 * 25_000 + 50 * 2_000_000
CALLS = """
import json, os, sys, urllib.error, urllib.request

body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "Hi"}]}
for name in sys.argv[1:]:
    headers = {"authorization": f"Bearer {os.environ[name]}", "content-type": "application/json"}
    url = os.environ["BASE"] + "/v1/chat/completions"
    try:
        asked = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(asked, timeout=20) as said:
            print(name, said.status, json.load(said)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        print(name, error.code, error.headers["x-tollbar-code"])
    except urllib.error.URLError as error:
        print(name, error.reason)
"""


@pytest.fixture
async def gateway(database):
    async with StandIn(script(TURN)).serving() as provider, world_of(database, PriceBook(), provider.url) as made:
        yield made


@pytest.mark.requirement("G-SBX-14.gateway")
async def test_a_call_is_its_own_sandboxes_whatever_key_it_carries(gateway, new_box):
    budget = await gateway.budget(10**12)
    keys = {name: await gateway.key(budget, subject=f"trial:{name}:1") for name in ("ONE", "TWO")}
    boxes = {name: await new_box(network=Network.GATEWAY) for name in keys}
    env = {name: key.secret for name, key in keys.items()}
    for name, box in boxes.items():
        subject = f"trial:{name}:1"
        url = await box.sandbox.expose_gateway(lambda listening, s=subject: gateway.listeners.serve(listening, s))
        env["BASE"] = url
    said = [await box.python(CALLS, argv=("ONE", "TWO"), env=env) for box in boxes.values()]
    assert said == ["ONE 200 All done.\nTWO 401 KEY_INVALID\n", "ONE 401 KEY_INVALID\nTWO 200 All done.\n"]
    assert [(row["subject"], row["cost_pusd"]) for row in await gateway.rows()] == [
        ("trial:ONE:1", COST_PUSD),
        ("trial:TWO:1", COST_PUSD),
    ]
    await boxes["ONE"].sandbox.kill()
    over = [await box.python(CALLS, argv=(name,), env=env) for name, box in boxes.items()]
    assert over == ["ONE [Errno 111] Connection refused\n", "TWO 200 All done.\n"]


@pytest.mark.requirement("G-SBX-14.secret_key")
async def test_the_virtual_key_stands_in_no_command_line_and_in_no_environment_but_the_tenants(gateway, new_box, host):
    key = await gateway.key(await gateway.budget(10**12), subject="trial:ONE:1")
    box = await new_box(network=Network.GATEWAY)
    url = await box.sandbox.expose_gateway(lambda listening: gateway.listeners.serve(listening, "trial:ONE:1"))
    env, mark = {"ONE": key.secret, "BASE": url}, host.marker()
    running = asyncio.create_task(box.sandbox.exec(["sleep", mark], env=env, timeout_s=30))
    await host.sleeping(mark)
    assert await box.python(CALLS, argv=("ONE",), env=env) == "ONE 200 All done.\n"
    seen = await asyncio.to_thread(host.holders, key.secret)
    await box.sandbox.kill()
    await asyncio.gather(running, return_exceptions=True)
    assert seen == {"sleep": "environ"}
    rows = await gateway.rows()
    assert key.secret not in json.dumps(rows, default=str)
