-- entries: lists the entries of a sliding log, newest first.
--
-- This is a complete script and not a frame. It reads what sliding_log.lua stores.
--
-- KEYS    1: the log.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the index of the last entry to return,
--         counted from zero.
-- Stored  see sliding_log.lua.
-- Reply   the time, and a list of the entries as they are stored. It may contain entries that have left the period:
--         they are removed with the next admission.
-- Effects none.
-- Pitfalls a key of another type has no entries.
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
