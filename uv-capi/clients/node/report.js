'use strict';
// What the programs share: sections that run one after the other and print what they found. The
// output is the same on every libuv, so nothing that depends on time, numbers of the system or the
// order of unrelated events is printed.

const { once } = require('events');

function show(label, value) {
  console.log(`  ${label}: ${typeof value === 'string' ? value : JSON.stringify(value)}`);
}

// The code of an error is libuv's; its message is not compared.
function code(error) {
  return error ? error.code || error.name : 'none';
}

async function refused(promise) {
  try {
    await promise;
    return 'none';
  } catch (error) {
    return code(error);
  }
}

async function sections(list) {
  for (const [name, run] of Object.entries(list)) {
    console.log(name);
    await run();
  }
}

// All bytes of a stream.
async function collect(stream) {
  const pieces = [];
  for await (const piece of stream) pieces.push(Buffer.from(piece));
  return Buffer.concat(pieces);
}

// A sum that depends on the order of the bytes.
function digest(bytes) {
  return require('crypto').createHash('sha256').update(bytes).digest('hex').slice(0, 16);
}

// Bytes that are the same in every run, and compress to nothing short.
function pattern(length) {
  const bytes = Buffer.alloc(length);
  for (let state = 1, index = 0; index < length; index++) {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    bytes[index] = state >> 16;
  }
  return bytes;
}

async function listen(server, ...where) {
  server.listen(...where);
  await once(server, 'listening');
  return server.address();
}

module.exports = { show, code, refused, sections, collect, digest, pattern, listen, once };
