'use strict';
// Signals, timers, immediates and the order of callbacks, and the loop's own numbers.

const { spawn } = require('child_process');
const { performance, monitorEventLoopDelay } = require('perf_hooks');
const { show, code, sections, once } = require('./report');

if (process.argv[2] === 'child') {
  process.on('SIGTERM', () => process.exit(11));
  process.on('SIGHUP', () => console.log('hangup'));
  setInterval(() => {}, 1000);
  console.log('ready');
  return;
}

sections({
  async 'signals: of this process'() {
    for (const name of ['SIGUSR2', 'SIGHUP', 'SIGWINCH', 'SIGCONT', 'SIGPIPE']) {
      const received = once(process, name);
      process.kill(process.pid, name);
      show(name, (await received)[0]);
    }
    let count = 0;
    const enough = new Promise((done) => process.on('SIGUSR2', () => ++count === 3 && done()));
    for (let index = 0; index < 3; index++) {
      process.kill(process.pid, 'SIGUSR2');
      await new Promise((done) => setImmediate(done));
      await new Promise((done) => setTimeout(done, 2));
    }
    await enough;
    show('three', count);
    process.removeAllListeners('SIGUSR2');
    show('no such process', (() => { try { process.kill(4000000, 0); return 'none'; } catch (error) { return code(error); } })());
  },

  async 'signals: of a child'() {
    const child = spawn(process.execPath, [__filename, 'child'], { stdio: ['ignore', 'pipe', 'inherit'] });
    child.stdout.setEncoding('utf8');
    show('child', (await once(child.stdout, 'data'))[0].trim());
    child.kill('SIGHUP');
    show('child', (await once(child.stdout, 'data'))[0].trim());
    child.kill('SIGTERM');
    show('ended', await once(child, 'exit'));
  },

  async 'order of callbacks'() {
    const order = [];
    await new Promise((done) => {
      require('fs').stat(__filename, () => {
        setTimeout(() => { order.push('timeout'); done(); }, 0);
        setImmediate(() => order.push('immediate'));
        process.nextTick(() => order.push('tick'));
        Promise.resolve().then(() => order.push('microtask'));
      });
    });
    show('after a file', order);
    const ticks = [];
    await new Promise((done) => {
      for (let index = 5; index > 0; index--) setTimeout(() => { ticks.push(index); if (ticks.length === 5) done(); }, index * 20);
    });
    show('timers', ticks);
    const timer = setTimeout(() => {}, 100000);
    timer.unref();
    show('unreferenced', timer.hasRef());
    show('immediates', await new Promise((done) => {
      let count = 0;
      const step = () => (++count === 1000 ? done(count) : setImmediate(step));
      step();
    }));
    let intervals = 0;
    await new Promise((done) => { const id = setInterval(() => { if (++intervals === 5) { clearInterval(id); done(); } }, 1); });
    show('intervals', intervals);
  },

  async 'numbers of the loop'() {
    show('idle', performance.eventLoopUtilization().idle > 0);
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    await new Promise((done) => setTimeout(done, 30));
    delay.disable();
    show('delay', delay.max > 0);
    show('usage', process.cpuUsage().user > 0 && process.memoryUsage().rss > 0 && process.uptime() > 0);
    const os = require('os');
    show('system', [os.cpus().length > 0, os.totalmem() > os.freemem(), os.hostname().length > 0, os.loadavg().length, os.userInfo().uid]);
    show('interfaces', Object.keys(os.networkInterfaces()));
    show('priority', os.getPriority());
    process.title = 'renamed';
    show('title', process.title);
    show('hrtime', process.hrtime.bigint() > 0n);
  },
}).catch((error) => {
  console.log('failed', code(error), error);
  process.exitCode = 1;
});
