'use strict';
// A cluster, with both ways to distribute connections, and workers that end.

const cluster = require('cluster');
const http = require('http');
const net = require('net');
const { spawnSync } = require('child_process');
const { show, code, sections, collect, once } = require('./report');

if (cluster.isWorker) {
  const server = http.createServer((_, response) => response.end('worker'));
  server.listen(0, '127.0.0.1');
  process.on('message', (message) => {
    if (message === 'crash') process.exit(9);
    process.send(message);
  });
  return;
}

function get(port) {
  return new Promise((resolve, reject) => {
    http.get({ port, host: '127.0.0.1', agent: false }, (response) => collect(response).then(resolve)).on('error', reject);
  });
}

async function run() {
  const workers = Array.from({ length: 3 }, () => cluster.fork());
  const addresses = await Promise.all(workers.map((worker) => once(worker, 'listening')));
  const ports = new Set(addresses.map(([address]) => address.port));
  show('ports', ports.size);
  const [port] = ports;
  const answers = await Promise.all(Array.from({ length: 30 }, () => get(port)));
  show('answers', answers.filter((body) => body.toString() === 'worker').length);
  workers[0].send('ping');
  show('message', (await once(workers[0], 'message'))[0]);
  workers[0].send('crash');
  show('crash', await once(workers[0], 'exit'));
  show('after it', String(await get(port)));
  workers[1].kill('SIGKILL');
  show('killed', await once(workers[1], 'exit'));
  workers[2].disconnect();
  const [status] = await once(workers[2], 'exit');
  show('disconnected', [status, workers[2].exitedAfterDisconnect]);
  // The kernel closes the sockets of a killed process some milliseconds late if they are polled by a
  // ring: until then it accepts connections, and resets them.
  let refusal;
  do {
    const socket = net.connect(port, '127.0.0.1');
    refusal = await Promise.race([once(socket, 'error'), once(socket, 'connect')]);
    socket.on('error', () => {}).destroy();
  } while (code(refusal[0]) !== 'ECONNREFUSED');
  show('nothing listens', code(refusal[0]));
}

// The policy is fixed when a process forks its first worker.
if (!process.env.NODE_CLUSTER_SCHED_POLICY) {
  for (const policy of ['rr', 'none']) {
    const env = { ...process.env, NODE_CLUSTER_SCHED_POLICY: policy };
    const { status } = spawnSync(process.execPath, [__filename], { env, stdio: 'inherit' });
    show('status', status);
  }
  return;
}

sections({
  [`cluster: policy ${process.env.NODE_CLUSTER_SCHED_POLICY}`]: run,
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
