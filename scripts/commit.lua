-- commit: settles a reservation. Returns what was charged too much, and charges what is missing.
--
-- This file is a frame like check.lua, filled from the same files.
--
-- KEYS    1: the record that reserve.lua stored; then one per policy. All have the same hash tag.
-- ARGV    1: numbers, packed as in check.lua: the time in microseconds (below zero: the server's clock); the number of this
--         commit, above 0; the final cost for each policy; then the numbers of each policy.
-- Stored  for each policy, see its file. The number of the commit is written into the record.
-- Reply   1: settled now, or by an earlier call with the same number; 2: settled before; 0: there is no such record.
-- Effects less than reserved: as refund.lua, at the time of the reservation. More than reserved: the rest is charged now
--         as a debt, although it does not fit. A policy spends at most eight times its burst.
-- Pitfalls the record keeps its expiry.
local call, pcall = redis.call, redis.pcall
--@ states
--@ once
local pack, unpack, format = struct.pack, struct.unpack, string.format
--@ args number
--@ untagged
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
--@ size
local record = states[1]
if not record or #record ~= size then
  return 0
end
local lapse, settled, spent = unpack('<ddd', record)
if not (now < lapse) then
  return 0
elseif settled ~= 0 then
  return settled == number and 1 or 2
end
--@ keys 1
--@ each prepare
--@ held
--@ each step
--@ each settle
--@ if more_1 do owe
--@ if cost_1 > 0 and not more_1 do refund
call('SETRANGE', KEYS[1], '8', pack('<d', number))
return 1
