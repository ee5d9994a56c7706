-- publish: shows the limits of a process to operators, and returns the shares of keys that operators have set for them.
--
-- This is a complete script and not a frame. Each process that publishes limits calls it every few seconds, for all of them
-- at once.
--
-- KEYS    1: the set of limits; 2: the hash of shares.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the time in microseconds after which limits are
--         dropped that no process publishes; then for each limiter its name and its limits as text.
-- Stored  a sorted set: the text of each limiter, with the time of the last call. Processes with equal limits have one
--         text together. Operators write the hash: the share for the name of a limiter, such as 25%.
-- Reply   for each limiter, the share of the hash, or nil.
-- Effects stores the time of the call for each text, drops those that no process publishes, and sets the expiry of the set.
--         The hash is read only, and after that: a user without the right to read it still publishes.
-- Pitfalls a time in the future is left over from before the clock went back: it is dropped too.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local lapse = ARGV[2] + 0
local names = {}
for at = 3, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[at + 1])
  names[#names + 1] = ARGV[at]
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - lapse))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('%.0f', now + lapse), '+inf')
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lapse / 1000))
return redis.call('HMGET', KEYS[2], unpack(names))
