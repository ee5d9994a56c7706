-- purse: the units that a region holds of one limit. It decides checks, and chooses the process that asks the home.
--
-- KEYS    1: the purse.
-- ARGV    1: numbers, packed as little-endian doubles: the time in microseconds and the reign (below zero: the server's
--         own); the lowest time that the caller knows of this server, or 0; the length of a generation in microseconds;
--         1 for a check, 2 for a deposit. Of a check: the cost; 1 if it is made for the first time; the microseconds of
--         a round trip to the home; the most units that may be out. Of a deposit: the reign and the number of its claim;
--         the units, their birth and generation, the microseconds for which they may be spent since the claim, and those
--         until the home has a unit.
-- Stored  a string of little-endian doubles: the reign; the newest time that was seen; the number of the last call; the
--         time of the open claim, or 0; that of the last claim; what the last answer has granted; the time at which the
--         home has a unit; the demand in units of a microsecond, the units that were asked for since it was estimated,
--         and the time of that; then for each slot the birth, the generation, the time from which on nothing of it may
--         be spent, the units that are free, and those that were spent and not reported.
-- Reply   all are doubles in one string. Of a check: the time; 1 if it is admitted; the units that are free; the
--         microseconds after which units may come; 1 if units are awaited; the number of the call that the caller has to
--         carry, or 0; the time of its claim, the reign, the wanted and the held units; and for each report the birth,
--         the generation, the spent and the returned units. Of a deposit: the time, and 1 if it was expected and
--         has a place.
-- Effects the key expires when its last slot has lapsed, two generations after the last call at the earliest.
-- Pitfalls a purse of another reign is void: a copy of this server may have spent it, or may do so. The time never goes
--         back, or a slot would live longer.
local call, unpack, pack = redis.call, struct.unpack, struct.pack
local packed = ARGV[1]
local now, reign, floor, length, purpose, at = unpack('<ddddd', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if reign < 0 then
  reign = tonumber(string.sub(string.match(call('INFO', 'replication'), 'master_replid:(%x+)'), 1, 13), 16)
end
now = math.max(now, floor)
local stored, slots = call('GET', KEYS[1]), {}
local ruled, newest, number, since, claimed, granted, retry_at, rate, asked, estimated = reign, now, 0, 0, 0, 0, 0, 0, 0, now
if stored and #stored >= 80 and #stored % 40 == 0 and unpack('<d', stored) == reign then
  ruled, newest, number, since, claimed, granted, retry_at, rate, asked, estimated = unpack('<dddddddddd', stored)
  now = math.max(now, newest)
  for place = 81, #stored, 40 do
    local slot = { unpack('<ddddd', stored, place) }
    if now < slot[3] and slot[4] + slot[5] > 0 then
      slots[#slots + 1] = slot
    end
  end
end
local function free()
  local sum = 0
  for _, slot in ipairs(slots) do
    sum = sum + slot[4]
  end
  return sum
end
local reply
if purpose == 1 then
  local cost, first, trip, most = unpack('<dddd', packed, at)
  if first == 1 then
    asked = asked + cost
    local passed = now - estimated
    if passed >= 20000 then
      local sample = asked / passed
      rate = rate + (sample - rate) * (passed / (passed + 250000))
      asked, estimated = 0, now
    end
  end
  local admitted, missing = 0, cost
  if cost > 0 and free() >= cost then
    admitted, missing = 1, 0
    local left = cost
    for _, slot in ipairs(slots) do
      local units = math.min(left, slot[4])
      slot[4], slot[5], left = slot[4] - units, slot[5] + units, left - units
    end
  end
  local demand = math.max(rate, 0.000001)
  local need = demand * (trip + 100000) * 1.5 + missing
  local target = demand * (trip + math.max(trip * 3, 250000)) + 2 + missing
  local next_claim = 0
  if claimed > 0 then
    next_claim = claimed + 100000
    if granted == 0 then
      next_claim = math.max(next_claim, math.min(retry_at, claimed + 1000000))
    end
  end
  local may_claim
  if since > 0 then
    may_claim = now >= since + 4 * trip
  else
    may_claim = now >= next_claim
  end
  local holds, spent = free(), 0
  for _, slot in ipairs(slots) do
    spent = spent + slot[5]
  end
  local has_surplus = holds > target * 2 + 4
  local claim, want, told = 0, 0, {}
  if may_claim and (holds < need or has_surplus or spent * 16 > most) then
    target = math.ceil(target)
    local surplus = has_surplus and holds - target or 0
    number = math.max(number + 1, now)
    since, claimed, claim = now, now, number
    for _, slot in ipairs(slots) do
      local returned = math.min(surplus, slot[4])
      surplus, slot[4] = surplus - returned, slot[4] - returned
      if slot[5] + returned > 0 then
        told[#told + 1] = pack('<dddd', slot[1], slot[2], slot[5], returned)
      end
      slot[5] = 0
    end
    holds = free()
    want = math.max(target - holds, 0)
  end
  local retry, awaited = 0, 0
  if cost > 0 and admitted == 0 then
    local arrives = (since > 0 and since or next_claim) + trip
    retry = math.max(math.max(arrives, retry_at) - now, 1)
  end
  if since > 0 and (granted > 0 or retry_at == 0) then
    awaited = 1
  end
  reply = pack('<dddddddddd', now, admitted, holds, retry, awaited, claim, since, reign, want, holds) .. table.concat(told)
else
  local from, of, units, birth, generation, life, retry = unpack('<ddddddd', packed, at)
  local expected = 0
  if since > 0 and of == number and from == reign then
    expected = 1
    local ends = math.max(since + life - math.ceil(life / 1000), 0)
    since, granted, retry_at = 0, units, now + retry
    if units > 0 and ends > now then
      local place
      for _, slot in ipairs(slots) do
        if slot[1] == birth and slot[2] == generation then
          place = slot
        end
      end
      if place then
        place[3], place[4] = math.min(place[3], ends), place[4] + units
      elseif #slots < 6 then
        slots[#slots + 1] = { birth, generation, ends, units, 0 }
      else
        expected = 0
      end
    end
  end
  reply = pack('<dd', now, expected)
end
local last = now + 2 * length
local words = { pack('<dddddddddd', reign, now, number, since, claimed, granted, retry_at, rate, asked, estimated) }
for _, slot in ipairs(slots) do
  last = math.max(last, slot[3])
  words[#words + 1] = pack('<ddddd', slot[1], slot[2], slot[3], slot[4], slot[5])
end
call('SET', KEYS[1], table.concat(words), 'PXAT', string.format('%.0f', (last - last % 1000) / 1000 + 1))
return reply
