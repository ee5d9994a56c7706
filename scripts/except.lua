-- except: grants or withdraws an exception.
--
-- This is a complete script and not a frame. Operators call it, and applications with a console of their own.
--
-- KEYS    1: the hash of exceptions.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: a version that no other call has; 3: the name of the
--         exception: the limiter, the policy and the key, with tabs between them; 4: for how long it lasts in microseconds, 0
--         to withdraw it; 5: the end of its line; 6: the most exceptions; 7: the time in milliseconds after which an
--         untouched hash expires.
-- Stored  a hash: for the name of each exception a line of eight parts with tabs between them: the name, the times in
--         microseconds at which it begins and ends, and the end of the line. The version is in the field without a name.
-- Reply   a list of texts: the time, and the line that was replaced or withdrawn, empty for none; or the time, an empty text
--         and 'full' when there are too many. Nothing is granted then.
-- Effects sets the version and the expiry, and drops exceptions that have ended, and lines of another form.
-- Pitfalls all is read before the first write, and the version is written first: the source of a slot that moves refuses a
--         command on a missing key, and the hash is never without a field meanwhile. The expiry comes before the line: a user
--         who may not set it grants nothing.
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
else
  now = now + 0
end
local lasts = ARGV[4] + 0
local all = redis.call('HGETALL', KEYS[1])
local count, last = 0, ''
local ended = {}
for at = 1, #all, 2 do
  if all[at] ~= '' then
    local ends = string.match(all[at + 1], '^[^\t]*\t[^\t]*\t[^\t]*\t%d+\t(%d+)\t')
    if not ends or ends + 0 <= now then
      ended[#ended + 1] = all[at]
    elseif all[at] == ARGV[3] then
      last = all[at + 1]
    else
      count = count + 1
    end
  end
end
if lasts > 0 and count >= ARGV[6] + 0 then
  return { string.format('%.0f', now), '', 'full' }
end
redis.call('HSET', KEYS[1], '', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[7])
for at = 1, #ended do
  redis.call('HDEL', KEYS[1], ended[at])
end
if lasts > 0 then
  local times = string.format('\t%.0f\t%.0f\t', now, now + lasts)
  redis.call('HSET', KEYS[1], ARGV[3], table.concat({ ARGV[3], times, ARGV[5] }))
else
  redis.call('HDEL', KEYS[1], ARGV[3])
end
return { string.format('%.0f', now), last }
