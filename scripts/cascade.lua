-- cascade: reserves like reserve.lua, over policies that are spent one after the other, and others beside them.
--
-- Each policy gives what it has left, until the cost is covered. If all together have less, the request is denied, and
-- none gives anything. Only windows with one counter share: fixed, calendar, and from the first hit. A policy beside
-- them is charged a cost of its own in full, as by reserve.lua. All are charged, or none.
--
-- KEYS    1: the record; then one per policy. All have the same hash tag.
-- ARGV    1: numbers, packed as in check.lua: the time in microseconds (below zero: the server's clock); the time to
--         live of the record in microseconds; the cost that is shared; 1 if one policy has to give all of it, or else
--         0; the cost of each policy, and -1 of one that shares; then the numbers of each policy.
-- Stored  as reserve.lua. The cost of a policy in the record is what it gave.
-- Reply   as reserve.lua. Where the policies that share have too little, the cost of each is what it would have to
--         give beside the others, and each of them denies.
-- Effects as reserve.lua.
-- Pitfalls as reserve.lua. A commit takes the final cost of each policy, so the caller says which of them gets units
--         back.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = call('MGET', all(KEYS))
--@ functions
--@ numbers now life uncovered undivided costs ceilings quotas
tag = ''
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local status, record = 1, states[1]
if record and #record == 24 + 40 * <policies> and now < unpack('<d', record) then
  return { 2, record }
end
--@ key prepare settle share
--@ lack step verdict fits
if <fits> then
  --@ admit
else
  status = 0
  --@ leave
end
local lapse, parts = now + life, {}
parts[1] = pack('<ddd', lapse, 0, now)
--@ answer words denial entry
record = table.concat(parts)
if status == 1 then
  call('SET', KEYS[1], record, 'PXAT', format('%d', (lapse - lapse % 1000) / 1000 + 1))
end
return { status, record }

--# admit
if cost > 0 then
  --@ charge remember store
end

--# leave
if cost > 0 then
  --@ mend
end

--# entry: the cost and four words
parts[<number> + 1] = pack('<ddddd', cost, <words>, 0, 0)
