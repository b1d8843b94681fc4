-- Neovim: its own loop with jobs, a terminal, channels, timers, files and sockets, in one session.

local failed = false

local function show(label, value)
  io.write('  ', label, ': ', type(value) == 'string' and value or vim.inspect(value, { newline = ' ', indent = '' }), '\n')
end

local function wait(what, condition)
  if not vim.wait(20000, condition, 5) then
    io.write('failed: ', what, '\n')
    failed = true
  end
end

io.write('neovim: jobs\n')
local output, status = {}, nil
local job = vim.fn.jobstart({ 'sh', '-c', 'read line; echo "got $line"; exit 4' }, {
  stdout_buffered = true,
  on_stdout = function(_, data) output = data end,
  on_exit = function(_, code) status = code end,
})
vim.fn.chansend(job, 'a line\n')
wait('the job', function() return status end)
show('job', { output, status })
show('system', vim.fn.system({ 'cat' }, 'through cat'))
show('status', (vim.fn.system('exit 3') and vim.v.shell_error))
show('list', vim.fn.systemlist('printf "a\\nb\\n"'))
local killed
local sleeper = vim.fn.jobstart({ 'sleep', '100' }, { on_exit = function(_, code) killed = code end })
vim.fn.jobstop(sleeper)
wait('the end of a stopped job', function() return killed end)
show('stopped', killed)
show('missing', pcall(vim.fn.jobstart, { '/none' }) and 'none' or 'refused')

io.write('neovim: terminal\n')
local ended
vim.cmd('enew')
vim.fn.termopen({ 'sh', '-c', 'tty >/dev/null && echo a terminal; stty size' }, { on_exit = function(_, code) ended = code end })
wait('the terminal', function() return ended end)
wait('its text', function() return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), '\n'):match('a terminal') end)
show('terminal', { ended, vim.api.nvim_buf_get_lines(0, 0, 1, false)[1] })

io.write('neovim: channels\n')
local child = vim.fn.jobstart({ vim.v.progpath, '--embed', '--headless', '-u', 'NONE', '-i', 'NONE', '-n' }, { rpc = true })
show('evaluated', vim.rpcrequest(child, 'nvim_eval', '6 * 7'))
show('buffer', vim.rpcrequest(child, 'nvim_exec_lua', [[
  vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'one', 'two' })
  return vim.api.nvim_buf_get_lines(0, 0, -1, false)
]], {}))
local address = vim.rpcrequest(child, 'nvim_call_function', 'serverstart', { '127.0.0.1:0' })
local tcp = vim.fn.sockconnect('tcp', address, { rpc = true })
show('by TCP', vim.rpcrequest(tcp, 'nvim_eval', '"answer"'))
local path = vim.rpcrequest(child, 'nvim_call_function', 'serverstart', {})
local pipe = vim.fn.sockconnect('pipe', path, { rpc = true })
show('by a pipe', vim.rpcrequest(pipe, 'nvim_eval', '1 + 1'))
vim.fn.chanclose(tcp)
vim.fn.chanclose(pipe)
vim.fn.jobstop(child)
show('ended', vim.fn.jobwait({ child }, 20000)[1] ~= -1)

io.write('neovim: files\n')
local file = vim.fn.tempname()
vim.cmd('enew!')
vim.api.nvim_buf_set_lines(0, 0, -1, false, { 'first', 'second' })
vim.cmd('silent write ' .. file)
show('written', vim.fn.readfile(file))
vim.cmd('silent %!sort -r')
show('filtered', vim.api.nvim_buf_get_lines(0, 0, -1, false))
show('deleted', vim.fn.delete(file))
local changed
local watcher = vim.loop.new_fs_event()
local directory = vim.fn.tempname()
vim.fn.mkdir(directory)
watcher:start(directory, {}, function(_, name) changed = name end)
vim.fn.writefile({ 'x' }, directory .. '/new')
wait('the event', function() return changed end)
watcher:close()
show('watched', changed)
vim.fn.delete(directory, 'rf')

io.write('neovim: timers\n')
local ticks = 0
vim.fn.timer_start(1, function() ticks = ticks + 1 end, { ['repeat'] = 5 })
wait('five ticks', function() return ticks == 5 end)
show('ticks', ticks)
local deferred
vim.defer_fn(function() deferred = true end, 5)
wait('a deferred call', function() return deferred end)
local worked
vim.loop.new_work(function(number) return number + 1 end, function(sum) worked = sum end):queue(41)
wait('work', function() return worked end)
show('work', worked)
io.stdout:flush()
vim.cmd(failed and 'cquit! 1' or 'qall!')
