-- report: keeps what a process enforces, for operators: its rules and its limits.
--
-- This is a complete script and not a frame. Each process calls it every few seconds.
--
-- KEYS    1: the set of reports.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the time in microseconds after which the report of a
--         silent process is dropped; 3: the report, empty to withdraw it; then the reports of the same process that it replaces.
-- Stored  a sorted set: the text of the last report of each process, with the time of its call.
-- Reply   the number 0.
-- Effects stores the report with the time of the call, drops those that it replaces and those of processes that are silent for
--         long, and sets the expiry of the set.
-- Pitfalls a replaced report is given the time 0, and is dropped with the old ones: ZREM would be a further right.
--         A time in the future is left over from before the clock went back: it is dropped too.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local keep = ARGV[2] + 0
if ARGV[3] ~= '' then
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[3])
end
for at = 4, #ARGV do
  redis.call('ZADD', KEYS[1], '0', ARGV[at])
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - keep))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('%.0f', now + keep), '+inf')
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep / 1000))
return 0
