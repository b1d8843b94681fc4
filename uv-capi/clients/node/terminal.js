'use strict';
// A terminal: runs inside of script(1), which gives it one.

const tty = require('tty');
const readline = require('readline');
const { spawnSync } = require('child_process');
const { show, code, sections, once } = require('./report');

if (process.argv[2] !== 'inside') {
  const command = `stty rows 31 cols 77; ${process.execPath} ${__filename} inside`;
  const done = spawnSync('script', ['-qec', command, '/dev/null'], { input: 'typed line\n', timeout: 20000 });
  // The terminal echoes what is typed at a time of its own.
  const lines = done.stdout.toString().replace(/\r/g, '').split('\n').filter((line) => line.startsWith('  '));
  console.log('terminal');
  console.log(lines.join('\n'));
  show('status', done.status);
  return;
}

sections({
  async terminal() {
    show('is one', [tty.isatty(0), process.stdin.isTTY, process.stdout.isTTY, process.stdin.constructor.name]);
    show('size', process.stdout.getWindowSize());
    process.stdin.setRawMode(true);
    show('raw', process.stdin.isRaw);
    process.stdin.setRawMode(false);
    const lines = readline.createInterface({ input: process.stdin });
    show('line', (await once(lines, 'line'))[0]);
    lines.close();
    // Neither the closed input nor the signal keeps the loop alive.
    const alive = setInterval(() => {}, 1000);
    const resized = once(process.stdout, 'resize');
    spawnSync('stty', ['rows', '20', 'cols', '60'], { stdio: 'inherit' });
    await resized;
    clearInterval(alive);
    show('resized', process.stdout.getWindowSize());
    process.stdout.write('  ' + 'x'.repeat(50) + '\n');
    await new Promise((done) => process.stdout.write('  flushed\n', done));
  },
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
