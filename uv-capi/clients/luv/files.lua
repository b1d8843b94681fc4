-- luv: files, each call without and with a callback, file events, and what the system reports.

local uv = require('luv')

local function show(label, ...)
  local parts = {}
  for index = 1, select('#', ...) do parts[index] = tostring((select(index, ...))) end
  print('  ' .. label .. ': ' .. table.concat(parts, ' '))
end

local directory = uv.fs_mkdtemp(uv.os_tmpdir() .. '/luv-XXXXXX')
local function at(name) return directory .. '/' .. name end

-- Both forms of a call: its result, or the name of its error.
local function both(name, convert, ...)
  local call, arguments = uv['fs_' .. name], { ... }
  local result, _, problem = call(...)
  local first = result == nil and problem or convert(result)
  local second
  arguments[#arguments + 1] = function(err, value) second = err and err:match('^%u+') or convert(value) end
  call(unpack(arguments))
  uv.run()
  show(name, first, second)
end

local function same(value) return value end

local function permissions(mode) return string.format('%o', mode % 512) end

print('luv: files')
local fd = uv.fs_open(at('a'), 'w+', tonumber('640', 8))
both('write', same, fd, 'hello world', 0)
both('write', same, fd, { 'one', 'two', 'three' }, 20)
both('read', function(text) return #text end, fd, 100, 0)
both('fstat', function(stat) return stat.size .. stat.type end, fd)
both('ftruncate', same, fd, 8)
both('futime', same, fd, 10, 20.5)
both('fsync', same, fd)
both('fdatasync', same, fd)
both('fchmod', same, fd, tonumber('600', 8))
both('close', same, fd)
both('stat', function(stat) return stat.size .. ' ' .. stat.mtime.sec .. ' ' .. stat.mtime.nsec .. ' ' .. permissions(stat.mode) end, at('a'))
both('access', same, at('a'), 'R')
both('copyfile', same, at('a'), at('b'))
both('rename', same, at('b'), at('c'))
both('link', same, at('a'), at('link'))
both('symlink', same, 'a', at('symlink'))
both('readlink', same, at('symlink'))
both('realpath', function(path) return path:match('[^/]*$') end, at('symlink'))
both('lstat', function(stat) return stat.type end, at('symlink'))
both('chmod', same, at('a'), tonumber('644', 8))
both('utime', same, at('a'), 1, 2)
both('lutime', same, at('symlink'), 1, 2)
both('chown', same, at('a'), uv.getuid(), uv.getgid())
both('mkdir', same, at('d'), tonumber('755', 8))
both('rmdir', same, at('d'))
both('unlink', same, at('link'))
both('statfs', function(stat) return type(stat.bsize) end, directory)
both('mkdtemp', function(path) return #path - #directory end, at('XXXXXX'))
both('open', type, at('none/none'), 'r', 0)
both('read', same, 9999, 10, 0)
both('scandir', type, at('none'))
both('opendir', type, at('none'))
both('stat', type, at('none'))

print('luv: directories')
for index = 1, 30 do uv.fs_close(uv.fs_open(at('file' .. index), 'w', 420)) end
local names = {}
local scan = uv.fs_scandir(directory)
repeat
  local name, kind = uv.fs_scandir_next(scan)
  if name and name:match('^file') then names[#names + 1] = name .. ':' .. kind end
until not name
table.sort(names)
show('scandir', unpack(names))
local opened, total = uv.fs_opendir(directory, nil, 7), 0
repeat
  local entries = uv.fs_readdir(opened)
  for _, entry in ipairs(entries or {}) do if entry.name:match('^file') then total = total + 1 end end
until not entries
uv.fs_closedir(opened)
show('readdir', total)

print('luv: sendfile')
local source, target = uv.fs_open(at('a'), 'r', 0), uv.fs_open(at('sent'), 'w', 420)
show('sent', uv.fs_sendfile(target, source, 0, 100))
uv.fs_close(source)
uv.fs_close(target)

print('luv: watching')
local event = uv.new_fs_event()
event:start(directory, {}, function(err, name, kinds)
  assert(not err, err)
  if name == 'watched' then
    show('event', name, kinds.rename or kinds.change)
    event:close()
  end
end)
uv.fs_close(uv.fs_open(at('watched'), 'w', 420))
uv.run()
local poll = uv.new_fs_poll()
poll:start(at('watched'), 10, function(err, before, now)
  show('poll', err, before.size, now.size)
  poll:close()
end)
local delay = uv.new_timer()
delay:start(100, 0, function()
  local file = uv.fs_open(at('watched'), 'a', 0)
  uv.fs_write(file, 'more', 0)
  uv.fs_close(file)
  delay:close()
end)
uv.run()

print('luv: the system')
show('cpus', #uv.cpu_info() > 0, uv.available_parallelism() > 0)
show('memory', uv.get_total_memory() > uv.get_free_memory(), uv.resident_set_memory() > 0, uv.get_constrained_memory() ~= nil)
show('interfaces', uv.interface_addresses().lo[1].ip)
show('uptime', uv.uptime() > 0, uv.hrtime() > 0, uv.loadavg() ~= nil)
show('passwd', type(uv.os_get_passwd().uid), uv.os_uname().sysname)
show('environment', uv.os_setenv('UV_NAME', 'value'), uv.os_getenv('UV_NAME'), uv.os_unsetenv('UV_NAME'), uv.os_getenv('UV_NAME'))
show('paths', uv.exepath() ~= nil, uv.cwd() ~= nil, uv.os_homedir() == uv.os_getenv('HOME'), uv.chdir('/'), uv.cwd())
show('priority', uv.os_getpriority(0))
show('usage', uv.getrusage().utime.sec >= 0, #uv.random(16))
show('random', pcall(uv.random, -1))
show('handle of a file', uv.guess_handle(0), uv.fs_open('/dev/null', 'r', 0) > 2)
show('limits', uv.loop_alive(), uv.backend_timeout(), uv.loop_configure('block_signal', 'sigprof'))
show('errors', uv.translate_sys_error and uv.translate_sys_error(2) or 'none')
os.execute('rm -rf ' .. directory)
