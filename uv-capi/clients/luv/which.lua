-- The library that this program uses, and the kernel objects of its loop.

local uv = require('luv')
local links, scan = {}, uv.fs_scandir('/proc/self/fd')
for name in function() return (uv.fs_scandir_next(scan)) end do
  local link = uv.fs_readlink('/proc/self/fd/' .. name) or ''
  if link:match('^anon_inode') then links[#links + 1] = link end
end
print(uv.version_string(), table.concat(links, ' '))
