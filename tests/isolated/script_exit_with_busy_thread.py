"""The interpreter ends while daemon threads run busy loops, and others call into them."""

import threading
import time
import warnings

from kinds import new_loop

warnings.simplefilter("ignore", ResourceWarning)


def run(loop):
    def spin():
        loop.call_soon(spin)
        loop.call_later(0, bool)

    loop.call_soon(spin)
    loop.run_forever()


def call(loop):
    while True:
        loop.call_soon_threadsafe(bool)


for _ in range(2):
    loop = new_loop()
    for work in (run, call):
        threading.Thread(target=work, args=(loop,), daemon=True).start()
time.sleep(0.1)
print("ok")
