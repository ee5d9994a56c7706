-- entries: what a sliding log holds for a key, newest first.
--
-- A script of its own, not a frame: a look at the state that sliding_log.lua stores.
--
-- KEYS    1: the log.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the place of the last entry
--         to give, counted from zero.
-- Stored  see sliding_log.lua.
-- Reply   the time, and a list of the entries as they are stored; those that have left are among
--         them until something is admitted.
-- Effects none.
-- Pitfalls a key that holds something else has no entries.
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
