"""Destructors that the end of a loop calls close what else is open on it: the loop ends each thing once, whole."""

import asyncio
import contextlib
import gc
import socket
import warnings

from kinds import new_loop

warnings.simplefilter("ignore")
ran = []


class Ends:
    """A protocol factory, callback or argument whose end ends others."""

    def __init__(self, *acts):
        self.acts = acts

    def __call__(self, *args):
        return asyncio.Protocol()

    def __del__(self):
        for act in self.acts:
            with contextlib.suppress(RuntimeError, ValueError, OSError):
                act()
            gc.collect()
        ran.append(len(self.acts))


class Hooked(socket.socket):
    """A socket whose closing ends others, as a subclass may do."""

    acts = ()

    def detach(self):
        self.run()
        return super().detach()

    def close(self):
        self.run()
        super().close()

    def run(self):
        acts, self.acts = self.acts, ()
        for act in acts:
            act()


def server(loop, factory=asyncio.Protocol):
    return loop.run_until_complete(loop.create_server(factory, "127.0.0.1", 0))


def connected(loop, ours=None):
    a, b = socket.socketpair()
    if ours is not None:
        a = ours(fileno=a.detach())
    a.setblocking(False)
    transport, _ = loop.run_until_complete(loop.create_connection(asyncio.Protocol, sock=a))
    return transport, a, b


def a_server_closes(count, first):
    """A server's factory closes other servers, older or younger ones."""
    loop = new_loop()
    others = [] if first else [server(loop) for _ in range(count)]
    acts = []
    one = server(loop, Ends(lambda: [act() for act in acts]))
    if first:
        others = [server(loop) for _ in range(count)]
    acts += [other.close for other in others]
    one._protocol_factory = None
    del one, others
    loop.close()
    gc.collect()


def a_server_aborts():
    loop = new_loop()
    kept = [connected(loop) for _ in range(3)]
    acts = [transport.abort for transport, _, _ in kept] + [transport.__repr__ for transport, _, _ in kept]
    one = server(loop, Ends(*acts))
    one._protocol_factory = None
    del one
    loop.close()


def a_socket_closes():
    """The socket that a transport was given runs code when it is let go."""
    loop = new_loop()
    kept = [connected(loop, Hooked) for _ in range(3)]
    servers = [server(loop) for _ in range(3)]
    for _, sock, _ in kept:
        sock.acts = [other.close for other in servers] + [other[0].abort for other in kept] + [gc.collect]
    for transport, _, _ in kept:
        transport.close()
    loop.call_soon(loop.stop)
    loop.run_forever()
    kept += [connected(loop, Hooked) for _ in range(3)]
    for _, sock, _ in kept[3:]:
        sock.acts = [gc.collect, loop.is_closed, loop.__repr__]
    loop.close()


def callbacks_end():
    """What the queue, the timers and the watchers held."""
    loop = new_loop()
    a, b = socket.socketpair()
    one, transport = server(loop), connected(loop)
    acts = (one.close, transport[0].abort, lambda: loop.remove_reader(a), lambda: loop.add_reader(b, print))
    acts += (lambda: loop.call_soon(print), lambda: loop.call_later(1, print), loop.close, lambda: loop._ready)
    loop.call_soon(print, Ends(*acts))
    loop.call_later(3600, print, Ends(*acts))
    loop.call_later(3600, print, Ends(*acts[:-2])).cancel()
    loop.add_reader(a, Ends(*acts))
    loop.add_writer(b, Ends(*acts))
    loop.close()
    gc.collect()


for count in (1, 2, 7):
    for first in (False, True):
        a_server_closes(count, first)
a_server_aborts()
a_socket_closes()
callbacks_end()
gc.collect()
assert len(ran) >= 10, ran
fresh = new_loop()
assert fresh.run_until_complete(asyncio.sleep(0.001, 5)) == 5
fresh.close()
print("ok")
