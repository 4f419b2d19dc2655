"""Two hosts send each other SIZE bytes at the same time on one tcp connection: `listen|connect ADDRESS PORT SIZE`.

The listener says "listening" first; each end prints the seconds from the first bytes it receives to the last.
"""

import socket
import sys
import threading
import time


def main(role: str, address: str, port: int, size: int) -> None:
    if role == "listen":
        with socket.create_server((address, port)) as server:
            print("listening", flush=True)
            connection, _ = server.accept()
    else:
        connection = socket.create_connection((address, port), timeout=30)
    with connection:
        sender = threading.Thread(target=connection.sendall, args=(bytes(size),))
        sender.start()
        missing = size - len(connection.recv(1 << 16))
        start = time.monotonic()
        while missing:
            missing -= len(connection.recv(1 << 16))
        print(time.monotonic() - start)
        sender.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
