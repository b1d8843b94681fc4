'use strict';
// Child processes: output, input, exit codes, signals, descriptors, messages, and handles that are
// sent to a child.

const child = require('child_process');
const net = require('net');
const dgram = require('dgram');
const fs = require('fs');
const { show, code, sections, collect, digest, pattern, listen, once } = require('./report');

if (process.argv[2] === 'child') {
  // The program that `fork` starts.
  process.on('message', (message, handle) => {
    if (handle instanceof net.Server) {
      handle.on('connection', (socket) => socket.end('from the child'));
      process.send('listening');
    } else if (handle instanceof net.Socket) {
      handle.end(`child has ${message}`);
    } else if (handle) {
      handle.close();
      process.send(`handle ${handle.constructor.name}`);
    } else if (message === 'end') {
      process.exit(7); // The server that it was sent would keep it alive.
    } else {
      process.send({ echoed: message });
    }
  });
  return;
}

const ended = (process_) => once(process_, 'close').then(([status, signal]) => `${status} ${signal}`);

sections({
  async 'children: output and codes'() {
    const run = child.spawn('sh', ['-c', 'echo out; echo err >&2; exit 3']);
    const [out, err, status] = await Promise.all([collect(run.stdout), collect(run.stderr), ended(run)]);
    show('ended', [out.toString(), err.toString(), status]);
    const many = await Promise.all(Array.from({ length: 40 }, (_, index) =>
      new Promise((done) => child.exec(`echo ${index}; exit ${index % 7}`, (error, text) => done(`${text.trim()}/${error ? error.code : 0}`)))));
    show('many', many.join(' '));
    show('missing', code((await once(child.spawn('/none'), 'error'))[0]));
    show('not executable', code((await once(child.spawn('/etc/passwd'), 'error'))[0]));
    show('no directory', code((await once(child.spawn('true', { cwd: '/none' }), 'error'))[0]));
  },

  async 'children: input'() {
    const data = pattern(2 << 20);
    const cat = child.spawn('cat');
    cat.stdin.end(data);
    show('cat', (await collect(cat.stdout)).equals(data));
    const head = child.spawn('head', ['-c', '10']);
    let failed = 'none';
    head.stdin.on('error', (error) => (failed = code(error)));
    head.stdin.end(data);
    show('head', (await collect(head.stdout)).equals(data.subarray(0, 10)));
    if (!head.stdin.closed) await once(head.stdin, 'close');
    show('a reader that leaves', ['EPIPE', 'ECONNRESET', 'none'].includes(failed));
  },

  async 'children: descriptors, environment'() {
    const extra = child.spawn('sh', ['-c', 'echo three >&3; cat <&4; echo $NAME $PWD'], {
      stdio: ['ignore', 'pipe', 'inherit', 'pipe', 'pipe'], env: { NAME: 'value', PATH: process.env.PATH }, cwd: '/',
    });
    extra.stdio[4].end('four\n');
    const [out, three] = await Promise.all([collect(extra.stdout), collect(extra.stdio[3])]);
    show('extra', [three.toString(), out.toString()]);
    const null_ = fs.openSync('/dev/null', 'r+');
    show('shared', await ended(child.spawn('sh', ['-c', 'cat; echo x'], { stdio: [null_, null_, null_] })));
    const detached = child.spawn('sh', ['-c', 'ps -o pgid= -p $$ | tr -d " "'], { detached: true });
    show('a group of its own', Number(await collect(detached.stdout)) === detached.pid);
  },

  async 'children: signals'() {
    for (const signal of ['SIGTERM', 'SIGKILL', 'SIGUSR1']) {
      const sleeper = child.spawn('sleep', ['100']);
      await once(sleeper, 'spawn');
      sleeper.kill(signal);
      show(signal, await ended(sleeper));
    }
    const stopped = child.spawn('sleep', ['100'], { timeout: 20, killSignal: 'SIGINT' });
    show('time-out', await ended(stopped));
    const control = new AbortController();
    const aborted = child.spawn('sleep', ['100'], { signal: control.signal });
    const failure = once(aborted, 'error');
    control.abort();
    show('aborted', code((await failure)[0]));
  },

  async 'children: synchronous'() {
    const done = child.spawnSync('sh', ['-c', 'cat; echo err >&2; exit 4'], { input: pattern(200000) });
    show('spawnSync', [done.status, digest(done.stdout), done.stderr.toString()]);
    show('execFileSync', child.execFileSync('echo', ['text']).toString());
    show('time-out', child.spawnSync('sleep', ['100'], { timeout: 20 }).error.code);
    show('too much', child.spawnSync('yes', [], { maxBuffer: 1000 }).error.code);
    show('missing', child.spawnSync('/none').error.code);
  },

  async 'children: messages'() {
    const forked = child.fork(__filename, ['child']);
    for (const message of ['text', { nested: [1, 2, { x: null }] }, 'x'.repeat(300000).length]) {
      forked.send(message);
      show('echo', (await once(forked, 'message'))[0]);
    }
    const big = 'y'.repeat(500000);
    forked.send(big);
    show('big', (await once(forked, 'message'))[0].echoed === big);

    const server = net.createServer((socket) => socket.end('from the parent'));
    const { port } = await listen(server, 0, '127.0.0.1');
    forked.send('server', server);
    show('server', (await once(forked, 'message'))[0]);
    server.close();
    await once(server, 'close');
    show('connection', (await collect(net.connect(port, '127.0.0.1'))).toString());

    const passing = net.createServer({ pauseOnConnect: true }, (socket) => forked.send('a socket', socket));
    const address = await listen(passing, 0, '127.0.0.1');
    const sockets = await Promise.all(Array.from({ length: 5 }, () => collect(net.connect(address.port, '127.0.0.1'))));
    show('sockets', sockets.map(String).join(', '));
    passing.close();

    const udp = dgram.createSocket('udp4');
    udp.bind(0, '127.0.0.1');
    await once(udp, 'listening');
    forked.send('udp', udp);
    show('udp', (await once(forked, 'message'))[0]);
    udp.close();

    forked.send('end');
    show('end', await ended(forked));
    const killed = child.fork(__filename, ['child']);
    await once(killed, 'spawn');
    killed.disconnect();
    show('disconnected', await ended(killed));
  },
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
