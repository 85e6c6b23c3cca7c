"""A node handles a signal immediately, in whichever thread the kernel delivers it."""

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


def test_signal_delivered_to_another_thread_is_handled_immediately() -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=20, env={**os.environ})
    assert completed.stdout == "handled\n", completed.stderr
