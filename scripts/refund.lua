-- refund: give units back to all policies of one key; never more than are spent.
--
-- A frame as check.lua, filled from the same files.
--
-- KEYS    one per policy, all with the same hash tag.
-- ARGV    1: the time in microseconds, empty for the server's clock; 2: the units; 3: when they
--         were spent, empty for now; then for each policy as in check.lua.
-- Stored  per policy, see its file.
-- Reply   the integer 1.
-- Effects one SET with PXAT per policy that is still spent from (for a log see its file), a DEL
--         for one that is fresh then. A key that is not there is not made.
-- Pitfalls a window gives back only what was spent in it: units spent before it opened are gone.
local call, pcall = redis.call, redis.pcall
--@ once
local pack, unpack, format = struct.pack, struct.unpack, string.format
--@ args spent
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if spent < 0 then
  spent = now
end
--@ keys 0
--@ each prepare
--@ each settle
--@ each refund
return 1
