-- lease: decides like mixed.lua for policies that are leased, takes the reports of the caller, and grants it units.
--
-- This file is a frame like mixed.lua, filled from the same files and from leased.lua. For each subject, the reports come
-- first, then the requests, then the grant. A subject whose requests were denied, or cost nothing, is granted nothing.
--
-- KEYS    for each subject two per policy: that of the policy, and that of its outstanding units.
-- ARGV    1: numbers, packed as little-endian doubles: the time in microseconds (below zero: the server's clock); a random whole
--         number of at least 1, the birth of what this call begins; then for each subject the numbers of each policy, see
--         its file and leased.lua; the number of reports, and for each report the units that were spent, the units that
--         are returned, and for each policy the birth and the generation of the grant; the number of wanted units;
--         the number of runs and the runs, as in mixed.lua. 2 and the next ones, only if a policy is a log: the tag of
--         each subject.
-- Stored  for each policy, see its file and leased.lua.
-- Reply   for each subject: its runs, as in mixed.lua; then the granted units, the microseconds for which they may be spent, and
--         for each policy the birth and the generation. At the end the time. All are doubles in one string.
-- Effects as mixed.lua.
-- Pitfalls as mixed.lua. All costs of a request must be equal: a granted unit is one unit of every policy.
local call, pcall, all = redis.call, redis.pcall, unpack
local states = call('MGET', all(KEYS))
--@ once
--@ sizes
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, birth, next_byte = unpack('<dd', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
--@ policies
local replies, place = {}, 0
for at = 0, #KEYS - each, each do
  --@ keys at
  --@ tag
  --@ quotas
  --@ each prepare
  --@ each roll
  --@ line local use_1 = 0
  local reports
  reports, next_byte = unpack('<d', packed, next_byte)
  for report = 1, reports do
    local spent, returned
    spent, returned, next_byte = unpack('<dd', packed, next_byte)
    --@ each report
  end
  local grant, runs, costs
  grant, runs, next_byte = unpack('<dd', packed, next_byte)
  for run = 1, runs do
    --@ costs
    --@ run
    --@ each step
    local granted = 0
    --@ verdicts
    repeat
      --@ each fits
      --@ admitted
      if admitted then
        granted = granted + 1
        --@ if cost_1 > 0 do charge
        --@ free granted = count
      end
    until not admitted or granted == count
    --@ line if cost_1 > 0 and use_1 < 2 then use_1 = granted > 0 and 2 or 1 end
    --@ line if cost_1 > 0 then costs = true end
    if granted < count then
      grant = 0
    end
    if run == runs then
      --@ if use_1 == 2 do store_owed
      --@ if use_1 == 1 do mend
    end
    --@ each words
    --@ replies all
  end
  local life = 0
  if costs and grant > 0 then
    --@ each grantable
  else
    grant = 0
  end
  if grant > 0 then
    life = 9007199254740991
    --@ each grant
  end
  --@ if told_1 do keep
  replies[place + 1], replies[place + 2] = grant, life
  place = place + 2
  --@ line replies[place + 1], replies[place + 2], place = book_1[1], book_1[3], place + 2
end
place = place + 1
replies[place] = now
local parts = {}
for first = 1, place, 4000 do
  local last = math.min(first + 3999, place)
  parts[#parts + 1] = pack(string.rep('<d', last - first + 1), all(replies, first, last))
end
return table.concat(parts)
