-- exceptions: returns the exceptions that operators have granted, unless the caller knows them.
--
-- This is a complete script and not a frame. Each process with limiters that take exceptions calls it every few seconds.
--
-- KEYS    1: the hash of exceptions.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the version that the caller knows.
-- Stored  a hash, which except.lua writes: a line of text for each exception, and the version in the field without a name.
-- Reply   a list of texts: the time, the version, and if that is another one, 1 and all values of the hash. The version is
--         empty when there is no hash.
-- Effects none.
-- Pitfalls the values contain the version, which is no line of eight parts. Lines that have ended are among them.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local version = redis.call('HGET', KEYS[1], '') or ''
local reply = { string.format('%.0f', now), version }
if version ~= ARGV[2] then
  reply[3] = '1'
  local values = redis.call('HVALS', KEYS[1])
  for at = 1, #values do
    reply[at + 3] = values[at]
  end
end
return reply
