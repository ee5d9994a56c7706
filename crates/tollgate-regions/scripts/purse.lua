-- purse: the units that a region holds of one limit. It decides checks, leases units to processes, and chooses the one that
-- asks the home.
--
-- KEYS    1: the purse.
-- ARGV    1: numbers, packed as little-endian doubles: the time in microseconds and the reign (below zero: the server's
--         own); the lowest time that the caller knows of this server, or 0; the length of a generation in microseconds;
--         1 for a check, 2 for a deposit. Of a check: the cost; 1 if it is made for the first time; the microseconds of
--         a round trip to the home; the most units that may be out; the units that the caller wants to lease; the number of
--         its reports, and for each the birth and the generation, the units that were spent, and those that are
--         returned. Of a deposit: the reign and the number of its claim;
--         the units, their birth and generation, the microseconds for which they may be spent since the claim, and those
--         until the home has a unit.
-- Stored  a string of little-endian doubles: the reign; the newest time that was seen; the number of the last call; the
--         time of the open claim, or 0; that of the last claim; what the last answer has granted; the time at which the
--         home has a unit, or 0 when it had more; the demand in units of a microsecond, the units that were asked for
--         since it was estimated, and the time of that; then for each slot the birth, the generation, the time from which
--         on nothing of it may be spent, the units that are free, those that were spent and not reported, and those that
--         processes have leased.
-- Reply   all are doubles in one string. Of both: the time, and the units that nobody can spend any more, because they
--         have lapsed or another reign held them. Then of a check: 1 if it is admitted; the units that are free; the
--         microseconds after which units may come; 1 if units are awaited; the number of the call that the caller has to
--         carry, or 0; the time of its claim, the reign, the wanted and the held units; the leased units, their birth and
--         generation, and the microseconds for which they may be spent; and for each report of the call the birth, the
--         generation, the spent and the returned units. Of a deposit: 1 if it was expected and has a place, and the
--         units that are free.
-- Effects the key expires when its last slot has lapsed, two generations after the last call at the earliest.
-- Pitfalls a purse of another reign is void: a copy of this server may have spent it, or may do so. So is a text of another
--         program, whose numbers may be none. The time never goes back, or a slot would live longer.
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
local lost = 0
if stored and #stored >= 80 and #stored % 48 == 32 then
  local is_own = unpack('<d', stored) == reign
  if is_own then
    ruled, newest, number, since, claimed, granted, retry_at, rate, asked, estimated = unpack('<dddddddddd', stored)
    now = math.max(now, newest)
  end
  for place = 81, #stored, 48 do
    local slot = { unpack('<dddddd', stored, place) }
    if not is_own or now >= slot[3] then
      if slot[4] >= 0 and slot[4] % 1 == 0 then
        lost = math.min(lost + slot[4], 9007199254740992)
      end
    elseif slot[4] + slot[5] + slot[6] > 0 then
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
  local cost, first, trip, most, want, reports, spent
  cost, first, trip, most, want, reports, at = unpack('<dddddd', packed, at)
  spent = 0
  for _ = 1, reports do
    local birth, generation, used, back
    birth, generation, used, back, at = unpack('<dddd', packed, at)
    for _, slot in ipairs(slots) do
      if slot[1] == birth and slot[2] == generation then
        used = math.min(used, slot[6])
        back = math.min(back, slot[6] - used)
        slot[4], slot[5], slot[6] = slot[4] + back, slot[5] + used, slot[6] - used - back
        spent = spent + used
      end
    end
  end
  asked = asked + spent
  if first == 1 then
    asked = asked + cost
  end
  local passed = now - estimated
  if passed >= 20000 then
    local sample = asked / passed
    rate = rate + (sample - rate) * (passed / (passed + 250000))
    asked, estimated = 0, now
  end
  local admitted, missing = 0, cost
  local lease, lessor, leased, life = 0, 0, 0, 0
  if cost > 0 and free() >= cost then
    admitted, missing = 1, 0
    local left = cost
    for _, slot in ipairs(slots) do
      local units = math.min(left, slot[4])
      slot[4], slot[5], left = slot[4] - units, slot[5] + units, left - units
    end
    for place = #slots, 1, -1 do
      local slot = slots[place]
      if slot[4] >= 8 then
        lease, lessor, leased, life = math.min(want, math.floor(slot[4] / 8)), slot[1], slot[2], slot[3] - now
        slot[4], slot[6] = slot[4] - lease, slot[6] + lease
        break
      end
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
  local holds, unreported = free(), 0
  for _, slot in ipairs(slots) do
    unreported = unreported + slot[5]
  end
  local has_surplus = holds > target * 2 + 4
  local claim, wanted, told = 0, 0, {}
  if may_claim and (holds < need or has_surplus or unreported * 16 > most) then
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
    wanted = math.max(target - holds, 0)
  end
  local retry, awaited = 0, 0
  if cost > 0 and admitted == 0 then
    local arrives = (since > 0 and since or next_claim) + trip
    retry = math.max(math.max(arrives, retry_at) - now, 1)
  end
  if (retry_at == 0 or since > 0 and granted > 0) and rate * trip * 2 <= most then
    awaited = 1
  end
  local head = pack('<ddddddddddd', now, lost, admitted, holds, retry, awaited, claim, since, reign, wanted, holds)
  reply = head .. pack('<dddd', lease, lessor, leased, life) .. table.concat(told)
else
  local from, of, units, birth, generation, life, retry = unpack('<ddddddd', packed, at)
  local expected = 0
  if since > 0 and of == number and from == reign then
    expected = 1
    local ends = math.max(since + life - math.ceil(life / 1000), 0)
    since, granted, retry_at = 0, units, retry > 0 and now + retry or 0
    if units > 0 and ends <= now then
      expected = 0
    elseif units > 0 then
      local place
      for _, slot in ipairs(slots) do
        if slot[1] == birth and slot[2] == generation then
          place = slot
        end
      end
      if place then
        place[3], place[4] = math.min(place[3], ends), place[4] + units
      elseif #slots < 6 then
        slots[#slots + 1] = { birth, generation, ends, units, 0, 0 }
      else
        expected = 0
      end
    end
  end
  reply = pack('<dddd', now, lost, expected, free())
end
local last = now + 2 * length
local words = { pack('<dddddddddd', reign, now, number, since, claimed, granted, retry_at, rate, asked, estimated) }
for _, slot in ipairs(slots) do
  last = math.max(last, slot[3])
  words[#words + 1] = pack('<dddddd', slot[1], slot[2], slot[3], slot[4], slot[5], slot[6])
end
call('SET', KEYS[1], table.concat(words), 'PXAT', string.format('%.0f', (last - last % 1000) / 1000 + 1))
return reply
