-- tollgate, assembled for: SlidingLog
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local list = redis.pcall('LRANGE', KEYS[1], '0', ARGV[2])
if list.err then
  list = {}
end
return { now, list }
