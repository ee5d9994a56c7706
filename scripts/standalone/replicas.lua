-- tollgate, assembled for: all policies
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
