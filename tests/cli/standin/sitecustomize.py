"""Replace `headgate.server.node` by a node without Spark, for tests of the command line alone (through PYTHONPATH).

It listens on the port, reports that it is ready, answers each connection with one byte, and ends on the postmaster's signals.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
import types
from pathlib import Path


class Node:
    def __init__(self, data_dir, settings, on_ready=None):
        self.data_dir, self.settings, self.on_ready = data_dir, settings, on_ready
        self.on_stopping = lambda: None
        self.on_reloaded = lambda _: None
        self.stop_requested = threading.Event()

    def run(self):
        signal.signal(signal.SIGTERM, lambda *_: self.stop_requested.set())
        signal.signal(signal.SIGINT, lambda *_: self.stop_requested.set())
        signal.signal(signal.SIGQUIT, lambda *_: os._exit(2))
        signal.signal(signal.SIGHUP, lambda *_: self.reload())
        signal.signal(signal.SIGUSR1, lambda *_: self.report())
        with socket.create_server((self.settings.places("listen_addresses")[0], self.settings.integer("port"))) as server:
            threading.Thread(target=self.answer, args=(server,), daemon=True).start()
            print("standing in", flush=True)
            if os.environ.get("STANDIN_FALLS"):
                os.kill(os.getpid(), signal.SIGSEGV)
            if os.environ.get("STANDIN_NEVER_READY"):
                self.stop_requested.wait()
                return
            self.on_ready("postgres")
            if os.environ.get("STANDIN_FAILS"):
                from headgate.errors import PostgresError

                raise PostgresError("58000", "could not start Spark: as the test wants it")
            while not self.stop_requested.wait(1):
                pass
            self.on_stopping()
            if os.environ.get("STANDIN_STAYS"):
                while True:
                    signal.pause()

    def answer(self, server):
        while not os.environ.get("STANDIN_SILENT"):
            with server.accept()[0] as client:
                client.sendall(b"N")

    def reload(self):
        reload = self.settings.reload()
        (Path(self.data_dir) / "reloaded").write_text(",".join(reload.changed))
        self.on_reloaded(reload)

    def report(self):
        new = Path(self.data_dir) / "headgate.status.tmp"
        new.write_text(json.dumps({"time": time.time(), "log_end": "0/0", "subscriptions": [], "slots": []}))
        new.replace(Path(self.data_dir) / "headgate.status")


module = types.ModuleType("headgate.server.node")
module.Node = Node
sys.modules["headgate.server.node"] = module
