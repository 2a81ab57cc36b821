"""add_reader() with a number that no descriptor has is EBADF and costs no memory; one of a high descriptor works."""

import errno
import os
import resource
import socket

from kinds import new_loop

loop = new_loop()
WILD = (10_000_000, 2**30, 2**31 - 1)


def mapped():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


if not os.path.exists("/proc/self/statm"):
    mapped = lambda: 0  # noqa: E731
before = mapped()
room = before + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for number in WILD:
    for call in (loop.add_reader, loop.add_writer):
        code = None
        try:
            call(number, print)
        except OSError as exc:
            code = exc.errno
        assert code == errno.EBADF, (number, code)
    assert loop.remove_reader(number) is False
    assert loop.remove_writer(number) is False
assert mapped() - before < 16 << 20, mapped() - before
for number in (2**31, 2**40, 2**70):
    assert loop.remove_reader(number) is False
    for call in (loop.add_reader, loop.add_writer):
        try:
            call(number, print)
        except (OSError, OverflowError):
            pass
        else:
            raise AssertionError(number)
assert mapped() - before < 16 << 20, mapped() - before
# A failure leaves nothing behind: the loop sleeps and watches as before.
a, b = socket.socketpair()
got = []
loop.add_reader(a, lambda: got.append(a.recv(9)) or loop.stop())
b.send(b"!")
loop.run_forever()
assert got == [b"!"]
assert loop.remove_reader(a) is True
loop.close()
for sock in (a, b):
    sock.close()
print("ok")
