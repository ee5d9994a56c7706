-- look: tells what check.lua would decide for one request of one subject, and charges nothing.
--
-- KEYS    as check.lua.
-- ARGV    as check.lua. A tag is taken and not used.
-- Stored  for each policy, see its file.
-- Reply   as check.lua: the words of each policy before a charge.
-- Effects nothing is written, with two exceptions: a log deletes a key of another type, and leased units that have
--         lapsed are charged.
-- Pitfalls check.lua cuts a token or leaky bucket that holds more than the quota, because the quota was lowered, and
--         may store that. Nothing is stored here, so such a state is read as a debt (`is_owed`): its units return at
--         the times that this script tells, unless a check stores it before.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = #KEYS > 1 and call('MGET', all(KEYS))
--@ functions
--@ numbers now costs ceilings quotas
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
--@ key prepare step settle verdict fits
--@ answer words denial reply
return { <words>, now }

--# debt: what is not stored is not corrected either
local is_owed = true
