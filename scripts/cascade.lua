-- cascade: reserves like reserve.lua, over policies that are spent one after the other.
--
-- Each policy gives what it has left, until the cost is covered. If all together have less, the request is denied, and
-- none gives anything. Only for windows with one counter: fixed, calendar, and from the first hit.
--
-- KEYS    1: the record; then one per policy. All have the same hash tag.
-- ARGV    1: numbers, packed as in check.lua: the time in microseconds (below zero: the server's clock); the time to
--         live of the record in microseconds; the cost; 1 if one policy has to give all of it, or else 0; then the
--         numbers of each policy.
-- Stored  as reserve.lua. The cost of a policy in the record is what it gave.
-- Reply   as reserve.lua. Of a denied request, the cost of a policy is what it would have to give beside the others,
--         and every policy denies.
-- Effects as reserve.lua.
-- Pitfalls as reserve.lua. A commit takes the final cost of each policy, so the caller says which of them gets units
--         back.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = call('MGET', all(KEYS))
--@ functions
--@ numbers now life uncovered undivided quotas
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

--# share: takes what is left, while the cost is not covered
local free
--@ free
local cost = math.max(math.min(free, uncovered), 0)
if undivided > 0 and cost < uncovered then
  cost = 0
end
uncovered = uncovered - cost

--# lack: what is not covered fits no policy
cost = cost + uncovered

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
