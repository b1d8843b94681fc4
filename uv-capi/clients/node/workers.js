'use strict';
// Worker threads, each with a loop of its own: messages, memory that is shared, termination in every
// state, and what the pool does.

const { Worker, isMainThread, parentPort, workerData, MessageChannel } = require('worker_threads');
const crypto = require('crypto');
const fs = require('fs');
const net = require('net');
const zlib = require('zlib');
const { promisify } = require('util');
const { show, code, sections, collect, digest, pattern, listen, once } = require('./report');

async function work(message) {
  switch (message.job) {
    case 'echo':
      return message.value;
    case 'file':
      return digest(await fs.promises.readFile(__filename)).length;
    case 'server': {
      const server = net.createServer((socket) => socket.end('from a thread'));
      const { port } = await listen(server, 0, '127.0.0.1');
      const text = (await collect(net.connect(port, '127.0.0.1'))).toString();
      server.close();
      return text;
    }
    case 'timers':
      for (let index = 0; index < 20; index++) await new Promise((done) => setTimeout(done, 1));
      return 'elapsed';
    case 'add': {
      const counter = new Int32Array(message.memory);
      for (let index = 0; index < 10000; index++) Atomics.add(counter, 0, 1);
      return 'added';
    }
    case 'port':
      message.port.postMessage('by the port');
      message.port.close();
      return 'sent';
    case 'throw':
      throw new TypeError('thrown');
  }
}

if (!isMainThread) {
  parentPort.on('message', (message) => {
    if (message.job === 'throw') throw new TypeError('thrown');
    if (message.job === 'leave') process.exit(5);
    if (message.job === 'spin') for (;;) Atomics.add(new Int32Array(message.memory), 0, 1);
    work(message).then((value) => parentPort.postMessage(value));
  });
  parentPort.postMessage(`started with ${workerData}`);
  return;
}

async function start(data) {
  const worker = new Worker(__filename, { workerData: data });
  const [first] = await once(worker, 'message');
  return [worker, first];
}

async function ask(worker, message, transfer) {
  worker.postMessage(message, transfer);
  return (await once(worker, 'message'))[0];
}

sections({
  async 'workers: messages'() {
    const [worker, first] = await start('data');
    show('first', first);
    show('echo', await ask(worker, { job: 'echo', value: { list: [1, 'two', null], map: [...new Map([[1, 2]])] } }));
    const moved = pattern(100000).buffer.slice(0);
    const back = await ask(worker, { job: 'echo', value: moved }, [moved]);
    show('moved', [moved.byteLength, digest(Buffer.from(back))]);
    show('file', await ask(worker, { job: 'file' }));
    show('server', await ask(worker, { job: 'server' }));
    show('timers', await ask(worker, { job: 'timers' }));
    const { port1, port2 } = new MessageChannel();
    const through = once(port1, 'message');
    show('port', await ask(worker, { job: 'port', port: port2 }, [port2]));
    show('through it', (await through)[0]);
    show('terminated', await worker.terminate());
  },

  async 'workers: several'() {
    const all = await Promise.all(Array.from({ length: 6 }, (_, index) => start(index)));
    show('started', all.map(([, first]) => first).join(', '));
    const memory = new SharedArrayBuffer(4);
    await Promise.all(all.map(([worker]) => ask(worker, { job: 'add', memory })));
    show('sum', new Int32Array(memory)[0]);
    show('servers', (await Promise.all(all.map(([worker]) => ask(worker, { job: 'server' })))).length);
    show('codes', await Promise.all(all.map(([worker]) => worker.terminate())));
  },

  async 'workers: ends'() {
    const [thrower] = await start('x');
    thrower.postMessage({ job: 'throw' });
    show('thrown', (await once(thrower, 'error'))[0].name);
    const [leaver] = await start('x');
    leaver.postMessage({ job: 'leave' });
    show('left', (await once(leaver, 'exit'))[0]);
    const [spinner] = await start('x');
    const memory = new SharedArrayBuffer(4);
    spinner.postMessage({ job: 'spin', memory });
    while (Atomics.load(new Int32Array(memory), 0) === 0) await new Promise((done) => setTimeout(done, 1));
    show('stopped while it spins', await spinner.terminate());
    for (let index = 0; index < 5; index++) await new Worker(__filename, { workerData: 1 }).terminate();
    show('stopped while they start', true);
  },

  async 'workers: the pool'() {
    const hash = promisify(crypto.pbkdf2);
    const keys = await Promise.all(Array.from({ length: 12 }, (_, index) => hash('p', String(index), 100, 16, 'sha256')));
    show('keys', keys.map((key) => key.toString('hex').slice(0, 4)).join(' '));
    const packed = await promisify(zlib.deflate)(pattern(300000));
    show('zlib', digest(await promisify(zlib.inflate)(packed)));
    show('random', (await promisify(crypto.randomBytes)(32)).length);
  },
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
