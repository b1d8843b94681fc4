-- luv: every kind of handle by its thin binding, so that arguments and results are libuv's own.
--
-- No spawn fails here: luv 1.44 frees the handle then, which is in the loop's queue on any libuv.

local uv = require('luv')

local function show(label, ...)
  local parts = {}
  for index = 1, select('#', ...) do parts[index] = tostring((select(index, ...))) end
  print('  ' .. label .. ': ' .. table.concat(parts, ' '))
end

-- The name of an error, or the first result.
local function outcome(result, _, name) return result == nil and name or result end

local directory = uv.fs_mkdtemp(uv.os_tmpdir() .. '/luv-XXXXXX')

local function timers()
  print('luv: timers and watchers')
  local order, timer = {}, uv.new_timer()
  local rounds = 0
  timer:start(1, 1, function()
    rounds = rounds + 1
    if rounds == 3 then timer:close(function() order[#order + 1] = 'closed' end) end
  end)
  local idle, prepare, check = uv.new_idle(), uv.new_prepare(), uv.new_check()
  local ran = {}
  prepare:start(function() ran[#ran + 1] = 'prepare' prepare:close() end)
  idle:start(function() ran[#ran + 1] = 'idle' idle:close() end)
  check:start(function() ran[#ran + 1] = 'check' check:close() end)
  uv.run()
  show('rounds', rounds, order[1])
  show('phases', unpack(ran))
  show('again', outcome(uv.new_timer():again()))
  local unreferenced = uv.new_timer()
  unreferenced:start(100000, 0, function() end)
  unreferenced:unref()
  show('unreferenced', uv.run(), unreferenced:is_active(), unreferenced:has_ref())
  unreferenced:close()
  uv.run()
end

local function tcp()
  print('luv: TCP')
  local server, received = uv.new_tcp(), {}
  show('bind', server:bind('127.0.0.1', 0))
  server:listen(128, function(err)
    assert(not err, err)
    local peer = uv.new_tcp()
    server:accept(peer)
    peer:read_start(function(problem, chunk)
      assert(not problem, problem)
      if chunk then peer:write(chunk) else peer:shutdown(function() peer:close() end) end
    end)
  end)
  local address = server:getsockname()
  show('family', address.family)
  local client = uv.new_tcp()
  client:connect(address.ip, address.port, function(err)
    assert(not err, err)
    show('peer', client:getpeername().port == address.port, client:nodelay(true), client:keepalive(true, 60))
    client:read_start(function(problem, chunk)
      assert(not problem, problem)
      if chunk then received[#received + 1] = chunk else client:close() server:close() end
    end)
    show('try', client:try_write('first,'))
    client:write({ 'second,', string.rep('x', 2000000) }, function(problem) show('written', problem) end)
    client:shutdown()
  end)
  uv.run()
  local all = table.concat(received)
  show('echo', #all, all:sub(1, 16))
  local refused = uv.new_tcp()
  refused:connect('127.0.0.1', address.port, function(err) show('refused', err) refused:close() end)
  show('bad address', pcall(refused.connect, uv.new_tcp(), 'nonsense', 1, function() end))
  local reset = uv.new_tcp()
  show('not connected', outcome(reset:getpeername()))
  reset:close()
  uv.run()
end

local function udp()
  print('luv: UDP')
  local server, client, got = uv.new_udp(), uv.new_udp(), {}
  server:bind('127.0.0.1', 0)
  local port = server:getsockname().port
  server:recv_start(function(err, data, from)
    assert(not err, err)
    if data then server:send(data, from.ip, from.port, function() end) end
  end)
  client:recv_start(function(err, data)
    assert(not err, err)
    if data then
      got[#got + 1] = #data
      if #got == 4 then client:close() server:close() end
    end
  end)
  for _, size in ipairs({ 1, 500, 9000, 50000 }) do
    client:send(string.rep('u', size), '127.0.0.1', port, function(err) assert(not err, err) end)
  end
  uv.run()
  table.sort(got)
  show('sizes', unpack(got))
  local connected = uv.new_udp()
  show('connect', connected:connect('127.0.0.1', port))
  show('peer', connected:getpeername().port == port)
  show('try_send', connected:try_send('x', nil, nil))
  show('ttl', connected:set_ttl(5), connected:set_broadcast(true), connected:set_multicast_loop(true))
  connected:close()
  uv.run()
end

local function pipes()
  print('luv: pipes')
  local path = directory .. '/socket'
  local server = uv.new_pipe(false)
  show('bind', server:bind(path), outcome(uv.new_pipe(false):bind(path)))
  server:listen(16, function()
    local peer = uv.new_pipe(false)
    server:accept(peer)
    peer:write('greeting', function() peer:close() server:close() end)
  end)
  local client = uv.new_pipe(false)
  client:connect(path, function(err)
    assert(not err, err)
    show('peer', client:getpeername() == path)
    client:read_start(function(_, chunk) if chunk then show('read', chunk) else client:close() end end)
  end)
  uv.run()
  local fds = uv.pipe({ nonblock = true }, { nonblock = true })
  local reader, writer = uv.new_pipe(false), uv.new_pipe(false)
  reader:open(fds.read)
  writer:open(fds.write)
  show('directions', reader:is_readable(), reader:is_writable(), writer:is_readable(), writer:is_writable())
  writer:write('through')
  reader:read_start(function(_, chunk)
    if chunk then show('read', chunk) writer:close() else reader:close() end
  end)
  uv.run()
  local missing = uv.new_pipe(false)
  missing:connect(directory .. '/none', function(err) show('missing', err) missing:close() end)
  uv.run()
end

local function processes()
  print('luv: processes and signals')
  local out, text = uv.new_pipe(false), {}
  local handle, pid
  handle, pid = uv.spawn('sh', { args = { '-c', 'echo $0 $NAME; exit 5' }, stdio = { nil, out, 2 }, env = { 'NAME=value' } },
    function(code, signal) show('exit', code, signal) handle:close() end)
  show('pid', pid > 0 and handle:get_pid() == pid)
  out:read_start(function(_, chunk) if chunk then text[#text + 1] = chunk else out:close() end end)
  uv.run()
  show('output', (table.concat(text):gsub('\n', '')))
  local sleeper
  sleeper = uv.spawn('sleep', { args = { '100' } }, function(code, signal) show('killed', code, signal) sleeper:close() end)
  show('kill', sleeper:kill('sigterm'))
  uv.run()
  local watcher = uv.new_signal()
  watcher:start('sigusr1', function(name) show('signal', name) watcher:close() end)
  uv.kill(uv.os_getpid(), 'sigusr1')
  uv.run()
end

local function threads()
  print('luv: work, async, threads')
  local results = {}
  local work = uv.new_work(function(number) return number * number end, function(square) results[#results + 1] = square end)
  for number = 1, 20 do work:queue(number) end
  uv.run()
  table.sort(results)
  show('squares', unpack(results))
  local async
  async = uv.new_async(function(text) show('async', text) async:close() end)
  local thread = uv.new_thread(function(handle) handle:send('from a thread') end, async)
  thread:join()
  uv.run()
  local coalesced, calls = nil, 0
  coalesced = uv.new_async(function() calls = calls + 1 coalesced:close() end)
  for _ = 1, 100 do coalesced:send() end
  uv.run()
  show('coalesced', calls)
end

local function names()
  print('luv: names')
  uv.getaddrinfo('localhost', 'http', { family = 'inet', socktype = 'stream' }, function(err, found)
    show('localhost', err, found and found[1].addr, found and found[1].port)
  end)
  uv.run()
  uv.getnameinfo({ ip = '127.0.0.1', port = 80 }, function(err, host, service) show('service', err, service ~= nil) end)
  uv.run()
  show('bad name', outcome(uv.getaddrinfo('a name with spaces', nil, {})))
end

local function polls()
  print('luv: polls')
  local pair = uv.socketpair('stream', nil, { nonblock = true }, { nonblock = true })
  local poll, stream = uv.new_poll(pair[1]), uv.new_tcp()
  stream:open(pair[2])
  local seen = {}
  poll:start('rw', function(err, events)
    assert(not err, err)
    seen[#seen + 1] = events
    if events == 'w' then
      poll:start('r', function(_, next_events)
        seen[#seen + 1] = next_events
        poll:close()
        stream:close()
      end)
      stream:write('x')
    end
  end)
  uv.run()
  show('events', unpack(seen))
end

for _, part in ipairs({ timers, tcp, udp, pipes, processes, threads, names, polls }) do part() end
os.execute('rm -rf ' .. directory)
show('open handles', (function() local count = 0 uv.walk(function(handle) if not handle:is_closing() then count = count + 1 end end) return count end)())
