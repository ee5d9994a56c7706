-- replicas: counts the processes that have the same limits, and makes the caller known as one of them.
--
-- This is a complete script and not a frame. Each process calls it every few seconds, for all its limits at once.
--
-- KEYS    one or more: the set of the processes of each group of limits.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the name of the calling process; 3: the time
--         in microseconds after which a silent process is dropped.
-- Stored  sorted sets: the name of each process, with the time of its last call.
-- Reply   for each set, the number of processes, the caller included.
-- Effects stores the time of the call, drops silent processes, and sets the expiry of each set.
-- Pitfalls a time in the future is left over from before the clock went back: it is dropped too.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local lapse = ARGV[3] + 0
local counts = {}
for at = 1, #KEYS do
  redis.call('ZADD', KEYS[at], string.format('%.0f', now), ARGV[2])
  redis.call('ZREMRANGEBYSCORE', KEYS[at], '-inf', string.format('%.0f', now - lapse))
  redis.call('ZREMRANGEBYSCORE', KEYS[at], string.format('%.0f', now + lapse), '+inf')
  redis.call('PEXPIRE', KEYS[at], string.format('%.0f', lapse / 1000))
  counts[at] = redis.call('ZCARD', KEYS[at])
end
return counts
