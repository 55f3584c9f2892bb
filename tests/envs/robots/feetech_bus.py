"""Six STS3215 motors on a serial line that is a pseudo-terminal: Feetech's protocol 0, and motors
that are where they were told to be."""

import os
import pty
import select
import threading
import tty

PING, READ, WRITE, SYNC_READ, SYNC_WRITE = 1, 2, 3, 0x82, 0x83
MODEL, MIN_LIMIT, MAX_LIMIT, OFFSET, TORQUE, GOAL, PRESENT = 3, 9, 11, 31, 40, 42, 56
STS3215 = 777


class FeetechBus:
    """The motors with the numbers 1 to 6; `port` is the path of their line."""

    def __init__(self):
        self.memory = {number: bytearray(128) for number in range(1, 7)}
        for number in self.memory:
            self.set(number, MODEL, STS3215)
            self.set(number, MIN_LIMIT, 1024)
            self.set(number, MAX_LIMIT, 3072)
            self.set(number, PRESENT, 2048)
            self.set(number, GOAL, 2048)
        self._ours, self._theirs = pty.openpty()
        tty.setraw(self._theirs)
        self.port = os.ttyname(self._theirs)
        self.is_plugged = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def get(self, number: int, address: int) -> int:
        return int.from_bytes(self.memory[number][address : address + 2], "little")

    def set(self, number: int, address: int, value: int) -> None:
        self.memory[number][address : address + 2] = value.to_bytes(2, "little")

    def close(self) -> None:
        self.is_plugged = False
        os.close(self._theirs)
        self._thread.join()
        os.close(self._ours)

    def _serve(self) -> None:
        received = b""
        while True:
            try:
                if not select.select([self._ours], [], [], 0.1)[0]:
                    if not self._thread_is_needed():
                        return
                    continue
                received += os.read(self._ours, 256)
            except OSError:  # the other end is closed
                return
            while (start := received.find(b"\xff\xff")) >= 0 and len(received) >= start + 4:
                length = received[start + 3]
                if len(received) < start + 4 + length:
                    break
                packet = received[start + 2 : start + 4 + length]
                received = received[start + 4 + length :]
                if self.is_plugged:
                    self._answer(packet[0], packet[2], packet[3:-1])

    def _thread_is_needed(self) -> bool:
        try:
            os.fstat(self._theirs)
        except OSError:
            return False
        return True

    def _answer(self, number: int, instruction: int, content: bytes) -> None:
        if instruction == PING:
            self._status(number, b"")
        elif instruction == READ:
            self._status(number, bytes(self.memory[number][content[0] : content[0] + content[1]]))
        elif instruction == WRITE:
            self._write(number, content[0], content[1:])
            self._status(number, b"")
        elif instruction == SYNC_READ:
            for one in content[2:]:
                self._status(one, bytes(self.memory[one][content[0] : content[0] + content[1]]))
        elif instruction == SYNC_WRITE:
            address, width = content[0], content[1]
            for start in range(2, len(content), width + 1):
                self._write(content[start], address, content[start + 1 : start + 1 + width])

    def _write(self, number: int, address: int, data: bytes) -> None:
        self.memory[number][address : address + len(data)] = data
        if self.memory[number][TORQUE]:
            self.set(number, PRESENT, self.get(number, GOAL))

    def _status(self, number: int, data: bytes) -> None:
        body = bytes([number, len(data) + 2, 0]) + data
        os.write(self._ours, b"\xff\xff" + body + bytes([~sum(body) & 0xFF]))
