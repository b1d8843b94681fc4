"""uvloop: children, pipes, signals, timers, threads, the order of callbacks."""

import asyncio
import hashlib
import os
import pty
import signal
import sys
import threading

import uvloop

DATA = bytes((i * 104729 >> 4) & 255 for i in range(1 << 20))


def show(label, value):
    print(f"  {label}: {value}", flush=True)


async def children():
    print("uvloop: children")
    run = lambda text, **options: asyncio.create_subprocess_shell(
        text, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, **options)
    child = await run("echo out; echo err >&2; exit 3")
    show("ended", (await child.communicate(), child.returncode))
    cat = await run("cat", stdin=asyncio.subprocess.PIPE)
    out, _ = await cat.communicate(DATA)
    show("cat", out == DATA)
    several = await asyncio.gather(*(run(f"exit {i}") for i in range(20)))
    show("codes", [await child.wait() for child in several])
    sleeper = await run("exec sleep 100")
    sleeper.terminate()
    show("terminated", await sleeper.wait())
    # Python runs between fork and exec here.
    prepared = await run("echo $VALUE; umask", env={"VALUE": "set"}, cwd="/", preexec_fn=lambda: os.umask(0o77))
    show("prepared", (await prepared.communicate())[0])
    for command in ("/none", "/etc/passwd"):
        try:
            await asyncio.create_subprocess_exec(command)
        except OSError as error:
            show(command, type(error).__name__)
    read, write = os.pipe()
    child = await asyncio.create_subprocess_shell(f"echo inherited >/proc/self/fd/{write}", pass_fds=[write])
    os.close(write)
    await child.wait()
    show("passed", os.read(read, 100))
    os.close(read)


async def pipes():
    print("uvloop: pipes")
    loop = asyncio.get_running_loop()
    read, write = os.pipe()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read, "rb", 0))
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write, "wb", 0))
    transport.write(DATA)
    show("through a pipe", hashlib.sha256(await reader.readexactly(len(DATA))).hexdigest()[:16])
    transport.close()
    show("end", await reader.read())
    leader, follower = pty.openpty()
    terminal = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(terminal), os.fdopen(leader, "rb", 0))
    os.write(follower, b"from a terminal\n")
    show("terminal", await terminal.readline())
    os.close(follower)


async def signals():
    print("uvloop: signals")
    loop = asyncio.get_running_loop()
    received = asyncio.Queue()
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        loop.add_signal_handler(number, received.put_nowait, number.name)
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        os.kill(os.getpid(), number)
        show("received", await received.get())
    show("removed", (loop.remove_signal_handler(signal.SIGUSR1), loop.remove_signal_handler(signal.SIGUSR1)))
    threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGUSR2)).start()
    show("from a thread", await received.get())


async def callbacks():
    print("uvloop: callbacks")
    loop = asyncio.get_running_loop()
    order, done = [], loop.create_future()
    for delay in (0.06, 0.02, 0.04, 0):
        loop.call_later(delay, order.append, delay)
    loop.call_soon(order.append, "soon")
    loop.call_later(0.1, done.set_result, None)
    cancelled = loop.call_later(0.01, order.append, "cancelled")
    cancelled.cancel()
    await done
    show("order", sorted(order, key=str))
    show("timers in order", [one for one in order if one != "soon"])
    total = [0]

    def add():
        total[0] += 1

    def send():
        for _ in range(1000):
            loop.call_soon_threadsafe(add)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    while total[0] < 4000:
        await asyncio.sleep(0.001)
    for thread in threads:
        thread.join()
    show("from threads", total[0])
    show("executor", await asyncio.gather(*(loop.run_in_executor(None, pow, i, 2) for i in range(8))))
    try:
        await asyncio.wait_for(asyncio.sleep(100), 0.01)
    except asyncio.TimeoutError:
        show("time-out", True)
    before = loop.time()
    await asyncio.sleep(0.02)
    show("time passes", loop.time() - before >= 0.019)


async def main():
    for part in (children, pipes, signals, callbacks):
        await part()


uvloop.install()
asyncio.run(main())
# A loop in each of several threads.
results = []
threads = [threading.Thread(target=lambda: results.append(uvloop.new_event_loop().run_until_complete(asyncio.sleep(0.01, 1))))
           for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
show("loops in threads", results)
