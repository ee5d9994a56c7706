-- lease: decides like mixed.lua for policies that are leased, takes the reports of the caller, and grants it units.
--
-- For each subject, the reports come first, then the requests, then the grant. A subject whose requests were denied,
-- or cost nothing, is granted nothing.
--
-- KEYS    for each subject two per policy: that of the policy, and that of its outstanding units.
-- ARGV    1: numbers, packed as little-endian doubles: the time in microseconds (below zero: the server's clock); a
--         random whole number of at least 1, the birth of what this call begins; then for each subject the numbers of
--         each policy, see its file and leased.lua; the number of reports, and for each report the units that were
--         spent, the units that are returned, and for each policy the birth and the generation of the grant; the
--         number of wanted units; the number of runs and the runs, as in mixed.lua. 2 and the next ones, only if a
--         policy is a log: the tag of each subject.
-- Stored  for each policy, see its file and leased.lua.
-- Reply   for each subject: its runs, as in mixed.lua; then the granted units, the microseconds for which they may be
--         spent, and for each policy the birth and the generation. At the end the time. All are doubles in one
--         string.
-- Effects as mixed.lua.
-- Pitfalls as mixed.lua. All costs of a request must be equal: a granted unit is one unit of every policy.
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = call('MGET', all(KEYS))
--@ functions
--@ sizes
local packed, tag = ARGV[1]
local now, birth, next_byte = unpack('<dd', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local replies, place = {}, 0
for at = 0, #KEYS - <keys>, <keys> do
  --@ tag_of_subject
  --@ next quotas reports
  --@ key prepare roll use
  for report = 1, reports do
    local spent, returned
    spent, returned, next_byte = unpack('<dd', packed, next_byte)
    --@ report
  end
  local grant, runs, costs
  grant, runs, next_byte = unpack('<dd', packed, next_byte)
  for run = 1, runs do
    --@ next costs ceilings count
    local granted, asked = 0, 0
    --@ step ask verdict
    repeat
      --@ fits
      local admitted = <fits>
      if admitted then
        granted = granted + 1
        --@ admit
        if asked == 0 then
          granted = count
        end
      end
    until not admitted or granted == count
    --@ used
    if asked > 0 then
      costs = true
    end
    if granted < count then
      grant = 0
    end
    if run == runs then
      --@ finish
    end
    if count > 1 then
      place = place + 1
      replies[place] = granted
    end
    --@ answer words denial say
  end
  local life = 0
  if costs and grant > 0 then
    --@ grantable
  else
    grant = 0
  end
  if grant > 0 then
    life = 9007199254740991
    --@ grant
  end
  --@ note
  replies[place + 1], replies[place + 2] = grant, life
  place = place + 2
  --@ ledger
end
place = place + 1
replies[place] = now
local parts = {}
for first = 1, place, 4000 do
  local last = math.min(first + 3999, place)
  parts[#parts + 1] = pack(format('<%s', string.rep('d', last - first + 1)), all(replies, first, last))
end
return table.concat(parts)

--# use: 0 until a run asks for units, 1 while no such run was admitted, and then 2, as after a report
local use = 0

--# ask
asked = asked + cost

--# admit
if cost > 0 then
  --@ charge
end

--# used
if cost > 0 and use < 2 then
  use = granted > 0 and 2 or 1
end

--# finish
if use == 2 then
  --@ store_owed
elseif use == 1 then
  --@ mend
end

--# note
if told then
  --@ keep
end

--# ledger
replies[place + 1], replies[place + 2], place = book[1], book[3], place + 2
