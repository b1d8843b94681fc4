"""uvloop: TCP, Unix sockets, UDP, servers, transports, flow control, readers and writers, names."""

import asyncio
import hashlib
import os
import socket
import sys
import tempfile

import uvloop

DATA = bytes((i * 7919 >> 3) & 255 for i in range(4 << 20))


def show(label, value):
    print(f"  {label}: {value}", flush=True)


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


async def echo(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
    except ConnectionError:
        pass


async def exchange(reader, writer, data):
    async def send():
        writer.write(data)
        await writer.drain()
        writer.write_eof()

    sent = asyncio.create_task(send())
    received = await reader.read()
    await sent
    writer.close()
    await writer.wait_closed()
    return received


async def tcp():
    print("uvloop: TCP")
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connect = lambda: asyncio.open_connection("127.0.0.1", port)
    show("echo", digest(await exchange(*await connect(), DATA)))
    small = [exchange(*await connect(), b"message %d" % i) for i in range(60)]
    show("many", [len(answer) for answer in await asyncio.gather(*small)])
    reader, writer = await connect()
    sock = writer.get_extra_info("socket")
    show("family", sock.family.name)
    show("peer", writer.get_extra_info("peername")[1] == port)
    writer.transport.set_write_buffer_limits(high=1000)
    writer.write(DATA)
    writer.transport.abort()
    try:
        await reader.read()
        show("aborted", "end")
    except ConnectionError as error:
        show("aborted", type(error).__name__)
    server.close()
    await server.wait_closed()
    for host, expected in (("127.0.0.1", "closed"), ("192.0.2.1", "no network")):
        try:
            await asyncio.open_connection(host, port)
            show(expected, "none")
        except OSError as error:
            show(expected, type(error).__name__)


async def unix():
    print("uvloop: Unix sockets")
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "socket")
        server = await asyncio.start_unix_server(echo, path)
        show("echo", digest(await exchange(*await asyncio.open_unix_connection(path), DATA)))
        server.close()
        await server.wait_closed()
        try:
            await asyncio.open_unix_connection(os.path.join(directory, "none"))
        except OSError as error:
            show("missing", type(error).__name__)
    left, right = socket.socketpair()
    pair = await asyncio.open_connection(sock=left)
    other = await asyncio.open_connection(sock=right)
    pair[1].write(b"over a pair")
    show("pair", await other[0].readexactly(11))
    pair[1].close()
    show("end", await other[0].read())
    other[1].close()


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server):
        self.server, self.received, self.errors = server, asyncio.Queue(), asyncio.Queue()

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, address):
        if self.server:
            self.transport.sendto(data, address)
        else:
            self.received.put_nowait(data)

    def error_received(self, error):
        self.errors.put_nowait(error)


async def udp():
    print("uvloop: UDP")
    loop = asyncio.get_running_loop()
    server, _ = await loop.create_datagram_endpoint(lambda: Datagrams(True), ("127.0.0.1", 0))
    address = server.get_extra_info("sockname")
    client, protocol = await loop.create_datagram_endpoint(lambda: Datagrams(False), remote_addr=address)
    for size in (1, 100, 9000, 60000):
        client.sendto(DATA[:size])
        show(size, digest(await protocol.received.get()))
    for index in range(50):
        client.sendto(b"%d" % index)
    burst = [int(await protocol.received.get()) for _ in range(50)]
    show("burst", sorted(burst) == list(range(50)))
    server.close()
    await asyncio.sleep(0.05)
    client.sendto(b"nothing listens")
    show("refused", type(await protocol.errors.get()).__name__)
    client.close()


async def descriptors():
    print("uvloop: readers and writers")
    loop = asyncio.get_running_loop()
    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    readable, writable = asyncio.Event(), asyncio.Event()
    loop.add_reader(left, readable.set)
    loop.add_writer(left, writable.set)
    await writable.wait()
    show("writable", loop.remove_writer(left))
    right.send(b"x")
    await readable.wait()
    show("readable", left.recv(10))
    show("removed", (loop.remove_reader(left), loop.remove_reader(left)))
    pending = asyncio.create_task(loop.sock_recv(left, 10))
    await asyncio.sleep(0)
    await loop.sock_sendall(right, b"by the socket")
    show("sock_recv", await pending)
    left.close()
    right.close()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    accepting = asyncio.create_task(loop.sock_accept(listener))
    client = socket.socket()
    client.setblocking(False)
    await loop.sock_connect(client, listener.getsockname())
    peer, _ = await accepting
    show("sock_accept", peer.getpeername() == client.getsockname())
    for one in (listener, client, peer):
        one.close()


async def names():
    print("uvloop: names")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo("localhost", 80, family=socket.AF_INET, type=socket.SOCK_STREAM)
    show("localhost", found[0][4])
    show("service", (await loop.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST))[0])
    try:
        await loop.getaddrinfo("a name with spaces", 80)
    except OSError as error:
        show("bad name", type(error).__name__)


async def main():
    for part in (tcp, unix, udp, descriptors, names):
        await part()


uvloop.install()
asyncio.run(main())
sys.exit(0)
