"""Network namespaces: machines of one network on this machine, which can be cut from each other. They need root."""

import contextlib
import os
import shutil
import string
import subprocess


def may_make() -> bool:
    """Whether this process can try: it is root's, and there is `ip`."""
    return not os.geteuid() and shutil.which("ip") is not None


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60)


class Network:
    """Namespaces "a", "b", "c" … at a bridge, at which this process is, too. Addresses are 10.201.x.y."""

    def __init__(self, count: int = 3) -> None:
        self.count = count
        number = os.getpid() % 65536
        self._prefix = f"10.201.{number % 256}"
        self._name = f"gw{number:x}"
        self.hosts = [f"{self._prefix}.{2 + index}" for index in range(self.count)]

    def space(self, index: int) -> str:
        """Name of a namespace."""
        return f"{self._name}{string.ascii_lowercase[index]}"

    def within(self, index: int) -> tuple[str, ...]:
        """Words before a command that runs in a namespace."""
        return ("ip", "netns", "exec", self.space(index))

    def make(self) -> None:
        """Make all. Raises CalledProcessError where this process may not."""
        ip("link", "add", self._name, "type", "bridge")
        ip("addr", "add", f"{self._prefix}.1/24", "dev", self._name)
        ip("link", "set", self._name, "up")
        for index, host in enumerate(self.hosts):
            space = self.space(index)
            ip("netns", "add", space)
            ip("link", "add", f"{space}0", "type", "veth", "peer", "name", "eth0", "netns", space)
            ip("link", "set", f"{space}0", "master", self._name, "up")
            ip("-n", space, "addr", "add", f"{host}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                ip("-n", space, "link", "set", device, "up")

    def remove(self) -> None:
        """Remove what was made."""
        commands = [("netns", "del", self.space(index)) for index in range(self.count)] + [("link", "del", self._name)]
        for command in commands:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip(*command)

    def cut(self, index: int) -> None:
        """Cut a node from the others and from this process, silently."""
        ip("link", "set", f"{self.space(index)}0", "down")

    def cut_from_nodes(self, index: int) -> None:
        """Cut a node from the others, but not from this process."""
        for other in range(self.count):
            if other != index:
                ip("-n", self.space(index), "route", "add", "blackhole", f"{self.hosts[other]}/32")

    def heal(self, index: int) -> None:
        """Connect a node again."""
        ip("link", "set", f"{self.space(index)}0", "up")
        for other in range(self.count):
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("-n", self.space(index), "route", "del", "blackhole", f"{self.hosts[other]}/32")
