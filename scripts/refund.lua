-- refund: returns units to all policies of one subject, never more than were spent.
--
-- KEYS    one per policy, all with the same hash tag.
-- ARGV    1: numbers, packed as in check.lua: the time in microseconds (below zero: the server's clock); the number
--         of units for each policy; the time at which they were spent (-1: now; -1 - x: x microseconds ago); the
--         numbers of each policy; then for each token and leaky bucket the two words of the request that spent them,
--         or -1 and 0 if they are not known. As separate decimal arguments an empty time means the same as -1.
-- Stored  for each policy, see its file.
-- Reply   the integer 1.
-- Effects for each policy one SET with PXAT (for a log see its file), or a DEL if the state is fresh afterwards. An
--         absent key stays absent.
-- Pitfalls a window takes back only units that were spent in it. Units of an earlier window are ignored. A token
--         bucket takes back what it would hold more if the units had come back at once: see its file.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = #KEYS > 1 and call('MGET', all(KEYS))
--@ functions
--@ numbers now costs spent quotas places
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if spent < 0 then
  spent = now + 1 + spent
end
--@ key prepare holding step settle
--@ give
return 1

--# give
if cost > 0 then
  --@ refund
end

--# holding: whether the state is marked as a debt, and the rate of the decision where it is another one
local held, more = {}, false
