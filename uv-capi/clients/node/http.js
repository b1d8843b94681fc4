'use strict';
// HTTP/1.1 and HTTP/2 over loopback: keep-alive, chunked bodies, large bodies in both directions,
// clients that go away, time-outs.

const http = require('http');
const http2 = require('http2');
const net = require('net');
const { show, code, refused, sections, collect, digest, pattern, listen, once } = require('./report');

const large = pattern(3 << 20);

function handle(request, response) {
  switch (request.url) {
    case '/hello':
      response.end('hello\n');
      break;
    case '/large':
      response.end(large);
      break;
    case '/chunks':
      for (let index = 0; index < 100; index++) response.write(`chunk ${index}\n`);
      response.end();
      break;
    case '/digest':
      collect(request).then((body) => response.end(`${body.length} ${digest(body)}`));
      break;
    case '/never':
      break;
    case '/reset':
      request.socket.resetAndDestroy ? request.socket.resetAndDestroy() : request.socket.destroy();
      break;
    default:
      response.writeHead(404).end('not here');
  }
}

function request(options, body) {
  return new Promise((resolve, reject) => {
    const sent = http.request(options, async (response) => {
      resolve({ status: response.statusCode, body: await collect(response) });
    });
    sent.on('error', reject);
    sent.on('timeout', () => sent.destroy(Object.assign(new Error(), { code: 'TIMEOUT' })));
    sent.end(body);
  });
}

let server;
let port;

sections({
  async 'http: requests'() {
    server = http.createServer(handle);
    ({ port } = await listen(server, 0, '127.0.0.1'));
    const agent = new http.Agent({ keepAlive: true, maxSockets: 4 });
    const ask = (path, body, method = 'GET') =>
      request({ port, path, method, agent, host: '127.0.0.1' }, body);
    show('hello', (await ask('/hello')).body.toString().trim());
    show('missing', (await ask('/missing')).status);
    const chunks = (await ask('/chunks')).body;
    show('chunks', [chunks.length, digest(chunks)]);
    const received = (await ask('/large')).body;
    show('large response', [received.length, received.equals(large)]);
    show('large request', (await ask('/digest', large, 'POST')).body.toString());
    const many = await Promise.all(Array.from({ length: 200 }, () => ask('/hello')));
    show('200 on 4 connections', many.every((one) => one.body.toString() === 'hello\n'));
    agent.destroy();
  },

  async 'http: pipelined requests on one socket'() {
    const socket = net.connect(port, '127.0.0.1');
    socket.write('GET /hello HTTP/1.1\r\nHost: a\r\n\r\n'.repeat(9));
    socket.write('GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n');
    const text = (await collect(socket)).toString();
    show('answers', text.split('hello\n').length - 1);
  },

  async 'http: failures'() {
    show('reset', await refused(request({ port, path: '/reset' })));
    show('time-out', await refused(request({ port, path: '/never', timeout: 20 })));
    const aborted = http.request({ port, path: '/large' });
    aborted.on('error', () => {});
    aborted.end();
    const [response] = await once(aborted, 'response');
    response.destroy();
    await once(response, 'close');
    show('client left', response.complete);
    const malformed = net.connect(port, '127.0.0.1');
    malformed.end('nonsense\r\n\r\n');
    show('malformed', (await collect(malformed)).toString().split('\r\n')[0]);
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
    show('closed', await refused(request({ port, path: '/hello', host: '127.0.0.1' })));
  },

  async 'http2: streams on one session'() {
    const second = http2.createServer();
    second.on('stream', (stream, headers) => {
      stream.respond({ ':status': 200 });
      stream.end(headers[':path'] === '/large' ? large : headers[':path']);
    });
    const address = await listen(second, 0, '127.0.0.1');
    const session = http2.connect(`http://127.0.0.1:${address.port}`);
    const get = (path) => collect(session.request({ ':path': path }));
    const small = await Promise.all(Array.from({ length: 50 }, (_, index) => get(`/${index}`)));
    show('small', small.map(String).join(''));
    show('large', digest(await get('/large')));
    session.close();
    await once(session, 'close');
    second.close();
    await once(second, 'close');
    show('closed', true);
  },
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
