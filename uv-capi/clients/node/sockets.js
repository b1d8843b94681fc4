'use strict';
// TCP, Unix sockets and UDP: large transfers with back pressure, half-open connections, resets,
// time-outs, addresses, options and errors.

const net = require('net');
const dgram = require('dgram');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { setTimeout: sleep } = require('timers/promises');
const { show, code, refused, sections, collect, digest, pattern, listen, once } = require('./report');

const data = pattern(8 << 20);
const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'sockets-'));

// What TCP and Unix sockets have in common.
async function streams(...where) {
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    // A client that is destroyed below resets its connection.
    socket.on('error', () => {});
    socket.pipe(socket);
  });
  const address = await listen(server, ...where);
  const target = typeof address === 'string' ? [address] : [address.port, '127.0.0.1'];
  const client = net.connect(...target);
  client.end(data);
  show('echo', (await collect(client)).equals(data));
  const many = await Promise.all(Array.from({ length: 100 }, async (_, index) => {
    const one = net.connect(...target);
    one.end(`message ${index}`);
    return (await collect(one)).toString();
  }));
  show('many', [many.length, many.every((text, index) => text === `message ${index}`)]);

  const slow = net.connect(...target);
  const full = !slow.write(data);
  slow.end();
  let size = 0;
  for await (const piece of slow) {
    size += piece.length;
    if (size < 1 << 20) await sleep(1);
  }
  show('slow reader', [full, size]);
  show('bytes', [slow.bytesRead, slow.bytesWritten]);

  const destroyed = net.connect(...target);
  await once(destroyed, 'connect');
  const ended = new Promise((done) => destroyed.write(data, done));
  destroyed.destroy();
  await Promise.all([ended, once(destroyed, 'close')]);
  show('destroyed', destroyed.destroyed);
  server.close();
  await once(server, 'close');
  show('refused', ['ECONNREFUSED', 'ENOENT'].indexOf(code((await once(net.connect(...target), 'error'))[0])));
}

async function udp(type, loopback) {
  const server = dgram.createSocket(type);
  server.bind(0, loopback);
  await once(server, 'listening');
  const { port } = server.address();
  server.on('message', (message, peer) => server.send(message, peer.port, peer.address));
  const client = dgram.createSocket(type);
  const sizes = [0, 1, 1000, 9000, 60000];
  const received = new Map();
  const all = new Promise((done) => client.on('message', (message) => {
    received.set(message.length, digest(message));
    if (received.size === sizes.length) done();
  }));
  for (const size of sizes) {
    await new Promise((done) => client.send([data.subarray(0, size >> 1), data.subarray(size >> 1, size)], port, loopback, done));
  }
  await all;
  show('echo', [...received.keys()].sort((a, b) => a - b).map((size) => `${size}:${received.get(size)}`).join(' '));
  client.close();
  const connected = dgram.createSocket(type);
  connected.connect(port, loopback);
  await once(connected, 'connect');
  show('peer', connected.remoteAddress().address);
  connected.send('by connection');
  show('connected', String((await once(connected, 'message'))[0]));
  show('too long', await new Promise((done) => connected.send(Buffer.alloc(70000), (error) => done(code(error)))));
  connected.disconnect();
  connected.close();
  server.close();
  await once(server, 'close');
}

sections({
  'sockets: TCP': () => streams(0, '127.0.0.1'),
  'sockets: Unix': () => streams(path.join(directory, 'socket')),

  async 'sockets: details of TCP'() {
    const server = net.createServer();
    const { port } = await listen(server, 0, '127.0.0.1');
    const client = net.connect({ port, host: '127.0.0.1', localAddress: '127.0.0.1' });
    const [peer] = await once(server, 'connection');
    client.setNoDelay(true).setKeepAlive(true, 5000);
    show('addresses', [client.remotePort === port, peer.remotePort === client.localPort, peer.remoteFamily]);
    client.setTimeout(10);
    await once(client, 'timeout');
    show('time-out', true);
    peer.resetAndDestroy ? peer.resetAndDestroy() : peer.destroy();
    show('reset', code((await once(client, 'error'))[0]));
    const second = net.createServer();
    second.listen(port, '127.0.0.1');
    show('in use', code((await once(second, 'error'))[0]));
    server.close();
    show('no address', await refused(listen(net.createServer(), 0, '192.0.2.1')));
    show('no network', ['ENETUNREACH', 'EHOSTUNREACH'].includes(code((await once(net.connect(9, '192.0.2.1'), 'error'))[0])));
    const dual = net.createServer((socket) => socket.end(socket.remoteFamily));
    const address = await listen(dual, 0, '::1');
    show('version 6', (await collect(net.connect(address.port, '::1'))).toString());
    dual.close();
  },

  'sockets: UDP, version 4': () => udp('udp4', '127.0.0.1'),
  'sockets: UDP, version 6': () => udp('udp6', '::1'),

  async 'sockets: UDP, options'() {
    const socket = dgram.createSocket({ type: 'udp4', reuseAddr: true });
    socket.bind(0, '0.0.0.0');
    await once(socket, 'listening');
    const { port } = socket.address();
    socket.setTTL(9);
    socket.setBroadcast(true);
    socket.setMulticastTTL(3);
    socket.setMulticastLoopback(true);
    socket.setMulticastInterface('127.0.0.1');
    socket.addMembership('239.1.2.3', '127.0.0.1');
    socket.send('multicast', port, '239.1.2.3');
    show('multicast', String((await once(socket, 'message'))[0]));
    socket.dropMembership('239.1.2.3', '127.0.0.1');
    show('dropped twice', (() => { try { socket.dropMembership('239.1.2.3', '127.0.0.1'); return 'none'; } catch (error) { return code(error); } })());
    socket.setRecvBufferSize(10000);
    show('buffer', socket.getRecvBufferSize() >= 10000);
    show('queue', [socket.getSendQueueSize?.() ?? 0, socket.getSendQueueCount?.() ?? 0]);
    const taken = dgram.createSocket('udp4');
    taken.bind(port);
    show('in use', code((await once(taken, 'error'))[0]));
    socket.close();
    fs.rmSync(directory, { recursive: true });
  },
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
