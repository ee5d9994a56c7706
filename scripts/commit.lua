-- commit: settles a reservation. Returns what was charged too much, and charges what is missing.
--
-- KEYS    1: the record that reserve.lua stored; then one per policy. All have the same hash tag.
-- ARGV    1: numbers, packed as in check.lua: the time in microseconds (below zero: the server's clock); the number
--         of this commit, above 0; the final cost for each policy; then the numbers of each policy.
-- Stored  for each policy, see its file. The number of the commit is written into the record.
-- Reply   1: settled now, or by an earlier call with the same number; 2: settled before; 0: there is no such record.
-- Effects less than reserved: as refund.lua, at the time of the reservation. More than reserved: the rest is charged
--         now as a debt, although it does not fit. A policy spends at most eight times its burst.
-- Pitfalls the record keeps its expiry.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = call('MGET', all(KEYS))
--@ functions
--@ numbers now number costs quotas
tag = ''
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local record = states[1]
if not record or #record ~= 24 + 40 * <policies> then
  return 0
end
local lapse, settled, spent = unpack('<ddd', record)
if not (now < lapse) then
  return 0
elseif settled ~= 0 then
  return settled == number and 1 or 2
end
--@ key prepare difference holding step settle
--@ settlement
call('SETRANGE', KEYS[1], '8', pack('<d', number))
return 1

--# difference: what the final cost is above or below the reserved one
local more, was_first, was_second
do
  local held, first, second = unpack('<ddd', record, 40 * <number> - 15)
  --@ known
  more, cost = cost > held, math.min(math.abs(held - cost), 9007199254740991)
end

--# known
was_first, was_second = first, second

--# settlement
if more then
  --@ owe
elseif cost > 0 then
  --@ refund
end

--# holding: whether the state is marked as a debt, and the rate of the decision where it is another one
local held = {}
