"""RecursionError at any place of the loop's calls is an error like any other."""

import contextlib
import sys

from kinds import new_loop

loop = new_loop()
errors = []
loop.set_exception_handler(lambda loop, context: errors.append(type(context["exception"])))
sys.setrecursionlimit(150)


def deeper():
    deeper()


def to_the_brim(n):
    if n:
        to_the_brim(n - 1)
        return
    try:
        loop.call_soon(bool)
        loop.call_later(0, bool)
        loop.call_soon_threadsafe(bool)
    except RecursionError:
        pass


loop.call_soon(deeper)
for n in range(60, 148):
    with contextlib.suppress(RecursionError):
        to_the_brim(n)
loop.call_soon(loop.stop)
loop.run_forever()
sys.setrecursionlimit(1000)
assert errors == [RecursionError], errors
loop.close()
print("ok")
