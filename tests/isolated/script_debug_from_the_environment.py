"""PYTHONASYNCIODEBUG=1 and -X dev start loops in debug mode."""

import os
import subprocess
import sys

from kinds import KIND, new_loop

if len(sys.argv) > 2:
    loop = new_loop()
    print(loop.get_debug())
    loop.close()
    raise SystemExit


def ask(*options, **env):
    env = {**os.environ, "PYTHONDEVMODE": "", **env}
    out = subprocess.run([sys.executable, *options, __file__, KIND, "ask"], env=env, capture_output=True, text=True)
    return out.stdout.strip()


assert ask() == "False"
assert ask(PYTHONASYNCIODEBUG="1") == "True"
assert ask(PYTHONASYNCIODEBUG="") == "False"
assert ask("-X", "dev") == "True"
print("ok")
