"""A terminal in a held sandbox: a shell for a person, with the rights of a tenant and no others."""

import asyncio
from contextlib import aclosing, asynccontextmanager

import pytest

from tollbar.sandboxes.errors import SandboxLost
from tollbar.sandboxes.interface import Form

pytestmark = pytest.mark.forms(Form.HELD)


class Screen:
    """What a person sees of a terminal."""

    def __init__(self, terminal):
        self.terminal = terminal
        self.text = ""

    async def until(self, part):
        """Reads until the screen holds a text and returns everything up to it."""
        async with asyncio.timeout(20):
            while part not in self.text:
                data = await self.terminal.read()
                assert data, f"{part!r} never came: {self.text!r}"
                self.text += data.decode()
        seen, _, self.text = self.text.partition(part)
        return seen

    async def rest(self):
        """Reads to the end."""
        async with asyncio.timeout(20):
            while data := await self.terminal.read():
                self.text += data.decode()
        return self.text


@pytest.fixture
async def open_terminal(box):
    @asynccontextmanager
    async def opened(*argv, **options):
        terminal = await box.sandbox.interactive(argv, **{"timeout_s": 60, **options})
        async with aclosing(Closing(terminal)):
            yield Screen(terminal)

    return opened


class Closing:
    def __init__(self, terminal):
        self.aclose = terminal.close


async def test_a_shell_on_a_terminal_answers_what_is_typed_and_ends_with_its_code(open_terminal):
    async with open_terminal("sh", env={"PS1": "ask> "}, cwd="/tmp") as screen:
        await screen.until("ask> ")
        await screen.terminal.write(b"pwd; test -t 0 && test -t 1 && test -t 2 && echo all-$((20 + 3))\n")
        await screen.until("/tmp\r\n")
        await screen.until("all-23\r\n")
        await screen.terminal.write(b"exit 5\n")
        await screen.rest()
        assert (await screen.terminal.ended()).exit_code == 5


async def test_the_terminal_is_the_controlling_one_so_that_control_c_reaches_what_runs_in_front(open_terminal, host):
    mark = host.marker()
    async with open_terminal("sh", env={"PS1": "ask> "}) as screen:
        await screen.until("ask> ")
        await screen.terminal.write(f"sleep {mark}\n".encode())
        await host.sleeping(mark)
        await screen.terminal.write(b"\x03")
        await host.gone(mark)
        await screen.terminal.write(b"echo now-$((1 + 1)) > /dev/tty\n")
        await screen.until("now-2")


async def test_the_size_of_the_window_is_told_and_changes_are_told_again(open_terminal):
    async with open_terminal("sh", env={"PS1": "ask> "}, rows=31, columns=97) as screen:
        await screen.terminal.write(b"stty size\n")
        await screen.until("31 97")
        screen.terminal.resize(10, 40)
        await screen.terminal.write(b"stty size\n")
        await screen.until("10 40")
        with pytest.raises(ValueError, match="window"):
            screen.terminal.resize(0, 1 << 16)


async def test_a_terminal_has_the_rights_and_limits_of_every_other_command(open_terminal, box):
    look = "id -u; readlink /proc/self/ns/*; grep -E '^(Cap|NoNew|Seccomp)' /proc/self/status; ulimit -n; umask"
    plain = await box.sandbox.exec(["sh", "-c", look], timeout_s=20)
    async with open_terminal("sh", "-c", look) as screen:
        assert (await screen.rest()).splitlines() == (plain.stdout_tail + plain.stderr_tail).decode().splitlines()


async def test_no_descriptor_of_the_host_comes_with_a_terminal(open_terminal):
    async with open_terminal("sh", "-c", "ls /proc/$$/fd; for f in 0 1 2; do readlink /proc/$$/fd/$f; done") as screen:
        first, second, third, *links = (await screen.rest()).split()
        assert [first, second, third] == ["0", "1", "2"]
        assert len(set(links)) == 1, "all three are the one terminal"


async def test_closing_a_terminal_ends_everything_that_was_started_on_it(open_terminal, box, host):
    mark = host.marker()
    async with open_terminal("sh", "-c", f"setsid nohup sleep {mark} > /dev/null 2>&1 & sleep {mark}"):
        await host.sleeping(mark, 2)
    assert host.living(mark) == []
    assert (await box.sandbox.exec(["true"], timeout_s=9)).exit_code == 0


async def test_a_kill_and_a_time_out_end_a_terminal(open_terminal, box, host):
    mark = host.marker()
    async with open_terminal("sh", "-c", f"trap '' HUP TERM; sleep {mark}", timeout_s=0.5) as screen:
        await screen.rest()
        assert (await screen.terminal.ended()).timed_out
        assert host.living(mark) == []
    async with open_terminal("sleep", mark) as screen:
        await host.sleeping(mark)
        await box.sandbox.kill()
        await screen.rest()
        with pytest.raises(SandboxLost):
            await screen.terminal.ended()
        assert host.living(mark) == []


async def test_a_terminal_that_cannot_begin_leaves_no_descriptor(box, host):
    await box.sandbox.exec(["true"], timeout_s=9)
    before = host.descriptors()
    with pytest.raises(ValueError, match="window"):
        await box.sandbox.interactive(["sh"], timeout_s=9, rows=0)
    assert host.descriptors() == before
    await box.sandbox.destroy()
    with pytest.raises(RuntimeError):
        await box.sandbox.interactive(["sh"], timeout_s=9)
    assert host.descriptors() <= before
