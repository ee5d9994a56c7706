-- tollgate, assembled for: all policies
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local lapse = ARGV[3] + 0
redis.call('ZADD', KEYS[1], string.format('%.0f', now), ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - lapse))
redis.call('ZREMRANGEBYSCORE', KEYS[1], string.format('%.0f', now + lapse), '+inf')
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lapse / 1000))
return redis.call('ZCARD', KEYS[1])
