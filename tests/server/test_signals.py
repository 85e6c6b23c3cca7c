"""A node acts on a signal at once, whichever of its threads the kernel gives it to."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import signal, threading, sys
from headgate.server.signals import SignalWait

seen = threading.Event()
signal.signal(signal.SIGHUP, lambda *_: seen.set())
wait = SignalWait()

def another_thread():
    signal.pthread_kill(threading.get_ident(), signal.SIGHUP)

threading.Timer(0.2, another_thread).start()
while not seen.is_set():
    wait.wait()
wait.close()
print("handled")
"""


def test_a_signal_that_another_thread_got_waited_for_an_hour() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=20, env={**os.environ})
    assert done.stdout == "handled\n", done.stderr
