-- reserve: decides one request of one subject, and records what it charged under an id.
--
-- It charges all policies, or none. The record lets commit.lua settle the charge later, and lets a call be repeated:
-- the same id charges nothing a second time.
--
-- KEYS    1: the record; then one per policy. All have the same hash tag.
-- ARGV    1: numbers, packed as in check.lua: the time in microseconds (below zero: the server's clock); the time to
--         live of the record in microseconds; the cost for each policy; then the numbers of each policy.
-- Stored  for each policy, see its file. The record is a string of three little-endian doubles: the time at which it
--         lapses, the number of the commit that settled it (0: none), and the time of the reservation. Then for each
--         policy its cost and four words, see its file (0 for words that an algorithm does not have).
-- Reply   a list of the status and a record. Status 0: denied, the first word of each policy that denies is -1 -
--         word; 1: charged; 2: charged by an earlier call with this id, the record is the stored one.
-- Effects charged: as check.lua, and the record expires within 1 ms after it lapses. Denied: as check.lua, no record.
-- Pitfalls the name of the record has to name the policies and their order beside the id: the record does not. A
--         record that was settled stays until it lapses, so that a late repetition is not charged.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = call('MGET', all(KEYS))
--@ functions
--@ numbers now life costs ceilings quotas
tag = ''
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local status, record = 1, states[1]
if record and #record == 24 + 40 * <policies> and now < unpack('<d', record) then
  return { 2, record }
end
--@ key prepare step settle verdict fits
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
