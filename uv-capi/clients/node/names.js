'use strict';
// Names: those of /etc/hosts by the pool (getaddrinfo, getnameinfo), and c-ares over UDP sockets that
// the loop polls, against a server in this process.

const dns = require('dns').promises;
const dgram = require('dgram');
const { show, code, refused, sections, once } = require('./report');

// The answer to a query for an A record: every name is 192.0.2.7, but names that begin with "no".
function answer(query) {
  let end = 12;
  while (query[end] !== 0) end += query[end] + 1;
  const missing = query.subarray(13, 15).toString() === 'no';
  const head = Buffer.from(query.subarray(0, 12));
  head.writeUInt16BE(missing ? 0x8183 : 0x8180, 2);
  head.writeUInt16BE(missing ? 0 : 1, 6);
  head.writeUInt16BE(0, 8);
  head.writeUInt16BE(0, 10);
  const question = query.subarray(12, end + 5);
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
  return Buffer.concat(missing ? [head, question] : [head, question, record]);
}

sections({
  async 'names: lookup'() {
    show('localhost', await dns.lookup('localhost', { family: 4 }));
    show('a number', await dns.lookup('127.0.0.1'));
    show('version 6', await dns.lookup('::1'));
    show('all', (await dns.lookup('127.0.0.1', { all: true })).length);
    show('service', (await dns.lookupService('127.0.0.1', 80)).service);
    show('bad name', await refused(dns.lookup('a name with spaces')));
    const many = await Promise.all(Array.from({ length: 50 }, () => dns.lookup('localhost', { family: 4 })));
    show('many', new Set(many.map((one) => one.address)).size);
  },

  async 'names: a server on loopback'() {
    const server = dgram.createSocket('udp4', (query, peer) => server.send(answer(query), peer.port, peer.address));
    server.bind(0, '127.0.0.1');
    await once(server, 'listening');
    const resolver = new dns.Resolver({ timeout: 5000, tries: 2 });
    resolver.setServers([`127.0.0.1:${server.address().port}`]);
    show('resolve', await resolver.resolve4('host.example'));
    show('missing', await refused(resolver.resolve4('no.example')));
    const many = await Promise.all(Array.from({ length: 30 }, (_, index) => resolver.resolve4(`h${index}.example`)));
    show('many', new Set(many.flat()).size);
    const late = resolver.resolve4('host.example');
    resolver.cancel();
    show('cancelled', await refused(late));
    server.close();
    await once(server, 'close');
    show('no server', ['ECONNREFUSED', 'ETIMEOUT'].includes(await refused(resolver.resolve4('host.example'))));
  },
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
