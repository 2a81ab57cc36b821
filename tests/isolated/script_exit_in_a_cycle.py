"""The loop hangs in a cycle with everything it knows, and module globals are torn down around it."""

import asyncio
import sys
import warnings

from kinds import new_loop

warnings.simplefilter("ignore", ResourceWarning)


class Holder:
    def __init__(self):
        self.loop = new_loop()
        self.loop.holder = self
        self.handle = self.loop.call_soon(self.method, self)
        self.timer = self.loop.call_later(3600, self.method, self)
        self.loop.set_exception_handler(self.method)
        self.loop.set_task_factory(self.method)

    def method(self, *args):
        pass

    def __del__(self):
        if sys is None or asyncio is None:
            return


holder = Holder()
sys.modules["keeps"] = holder
print("ok")
