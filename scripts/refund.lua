-- refund: returns units to all policies of one subject, never more than were spent.
--
-- This file is a frame like check.lua, filled from the same files.
--
-- KEYS    one per policy, all with the same hash tag.
-- ARGV    1: numbers, packed as in check.lua: the time in microseconds (below zero: the server's
--         clock); the number of units for each policy; the time at which they were spent (below
--         zero: now); then
--         the numbers of each policy. As separate decimal arguments an empty time means the same
--         as one below zero.
-- Stored  for each policy, see its file.
-- Reply   the integer 1.
-- Effects for each policy one SET with PXAT (for a log see its file), or a DEL if the state is fresh
--         afterwards. An absent key stays absent.
-- Pitfalls a window takes back only units that were spent in it. Units of an earlier window are
--         ignored.
local call, pcall = redis.call, redis.pcall
--@ states
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
--@ each step
--@ each settle
--@ if cost_1 > 0 do refund
return 1
