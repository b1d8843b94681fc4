'use strict';
// Files: every call in its three forms (callback, promise, synchronous), streams, directories, and
// what watches them.

const fs = require('fs');
const path = require('path');
const os = require('os');
const { pipeline } = require('stream/promises');
const zlib = require('zlib');
const { show, code, refused, sections, collect, digest, pattern, once } = require('./report');

const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'files-'));
const at = (name) => path.join(directory, name);
const text = pattern(1 << 20);

// The error of the synchronous form, and that of the callback.
async function both(name, ...parameters) {
  let first = 'none';
  try {
    fs[`${name}Sync`](...parameters);
  } catch (error) {
    first = code(error);
  }
  const second = await new Promise((done) => fs[name](...parameters, (error) => done(code(error))));
  return `${first} ${second}`;
}

sections({
  async 'files: whole'() {
    await fs.promises.writeFile(at('a'), text);
    show('size', fs.statSync(at('a')).size);
    show('read', digest(await fs.promises.readFile(at('a'))));
    await fs.promises.appendFile(at('a'), 'more');
    await fs.promises.copyFile(at('a'), at('b'));
    show('copy', digest(fs.readFileSync(at('b'))));
    show('copy refused', await refused(fs.promises.copyFile(at('a'), at('b'), fs.constants.COPYFILE_EXCL)));
    await fs.promises.truncate(at('b'), 10);
    show('truncated', fs.readFileSync(at('b')).toString('hex'));
    await fs.promises.rename(at('b'), at('c'));
    await fs.promises.link(at('c'), at('d'));
    show('links', (await fs.promises.stat(at('d'))).nlink);
    await fs.promises.symlink('d', at('e'));
    show('symlink', [await fs.promises.readlink(at('e')), (await fs.promises.lstat(at('e'))).isSymbolicLink()]);
    show('real path', path.basename(await fs.promises.realpath(at('e'))));
  },

  async 'files: descriptors'() {
    const file = await fs.promises.open(at('f'), 'w+', 0o640);
    show('mode', ((await file.stat()).mode & 0o777).toString(8));
    show('vectored', (await file.writev([Buffer.from('one'), Buffer.from('two'), Buffer.from('three')])).bytesWritten);
    show('at an offset', (await file.write('TWO', 3)).bytesWritten);
    const pieces = [Buffer.alloc(3), Buffer.alloc(3), Buffer.alloc(9)];
    const { bytesRead } = await file.readv(pieces, 0);
    show('read', [bytesRead, Buffer.concat(pieces).toString().replace(/\0/g, '.')]);
    show('at the end', (await file.read(Buffer.alloc(4), 0, 4, 100)).bytesRead);
    await file.chmod(0o600);
    await file.utimes(1000, 2000.5);
    const stat = await file.stat({ bigint: true });
    show('times', [String(stat.atimeMs), String(stat.mtimeNs), (Number(stat.mode) & 0o777).toString(8)]);
    await file.datasync();
    await file.sync();
    await file.close();
    show('many', digest(Buffer.concat(await Promise.all(Array.from({ length: 64 }, async (_, index) => {
      const one = await fs.promises.open(at('a'));
      const buffer = Buffer.alloc(1000);
      await one.read(buffer, 0, 1000, index * 1000);
      await one.close();
      return buffer;
    })))));
  },

  async 'files: streams'() {
    await pipeline(fs.createReadStream(at('a'), { highWaterMark: 1000 }), zlib.createGzip(), fs.createWriteStream(at('a.gz')));
    show('through gzip', digest(await collect(fs.createReadStream(at('a.gz')).pipe(zlib.createGunzip()))));
    show('part', digest(await collect(fs.createReadStream(at('a'), { start: 5, end: 70000 }))));
  },

  async 'files: directories'() {
    await fs.promises.mkdir(at('x/y/z'), { recursive: true });
    for (let index = 0; index < 40; index++) fs.writeFileSync(at(`x/file${index}`), String(index));
    const names = await fs.promises.readdir(at('x'), { withFileTypes: true });
    show('entries', names.map((entry) => entry.name + (entry.isDirectory() ? '/' : '')).sort().join(' '));
    let count = 0;
    for await (const entry of await fs.promises.opendir(at('x'), { bufferSize: 7 })) count += entry.name.length;
    show('opendir', count);
    await fs.promises.cp(at('x'), at('copy'), { recursive: true });
    show('copied', fs.readdirSync(at('copy')).length);
    show('not empty', await both('rmdir', at('copy')));
    await fs.promises.rm(at('copy'), { recursive: true });
    show('removed', fs.existsSync(at('copy')));
  },

  async 'files: errors'() {
    const missing = at('none/none');
    for (const name of ['stat', 'lstat', 'readFile', 'readdir', 'unlink', 'rmdir', 'readlink', 'realpath', 'opendir', 'access', 'mkdir']) {
      show(name, await both(name, missing));
    }
    show('open a directory for writing', await both('open', directory, 'w'));
    show('mkdir that exists', await both('mkdir', directory));
    show('rename', await both('rename', missing, at('other')));
    show('symlink that exists', await both('symlink', 'd', at('e')));
    show('read a directory', await both('readFile', directory));
    show('closed descriptor', await both('fstat', 9999));
    const control = new AbortController();
    const read = fs.promises.readFile(at('a'), { signal: control.signal });
    control.abort();
    show('aborted', await refused(read));
  },

  async 'files: watching'() {
    const watcher = fs.watch(directory);
    const named = new Promise((done) => watcher.on('change', (_, name) => name === 'watched' && done(name)));
    fs.writeFileSync(at('watched'), 'x');
    show('event for', await named);
    watcher.close();
    await once(watcher, 'close');
    const polled = new Promise((done) => fs.watchFile(at('watched'), { interval: 10 }, (now, before) => done([before.size, now.size])));
    // The first stat of the watcher is of the old file, so the change waits for it.
    await new Promise((done) => setTimeout(done, 100));
    fs.appendFileSync(at('watched'), 'yz');
    show('polled size', await polled);
    fs.unwatchFile(at('watched'));
    show('watch nothing', (() => { try { fs.watch(at('none')); return 'none'; } catch (error) { return code(error); } })());
  },

  async 'files: the rest'() {
    show('access', await both('access', at('a'), fs.constants.R_OK));
    show('statfs', fs.statfs ? typeof (await fs.promises.statfs('/')).bsize : 'number');
    await fs.promises.lutimes(at('e'), 5, 6);
    show('times of a link', fs.lstatSync(at('e')).mtimeMs);
    await fs.promises.chown(at('a'), process.getuid(), process.getgid());
    fs.rmSync(directory, { recursive: true });
    show('cleaned', fs.existsSync(directory));
  },
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
