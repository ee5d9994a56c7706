-- home: grants units of one limit to regions. It decides no checks.
--
-- The reports of a call come first, then the grant. A call that was served before changes nothing but is written again,
-- so that WAIT waits for it.
--
-- KEYS    1: the state of the limit.
-- ARGV    1: numbers, packed as little-endian doubles: the time in microseconds and the reign (below zero: the server's
--         own); the amount of a token bucket, or 0 for a fixed window; the period in microseconds; the burst; the length
--         of a generation in microseconds; the most units that may be out; a random whole number of at least 1, the
--         birth of what this call begins; the region; the reign of its purse; the number of the call; the units that are
--         wanted, and those that are held; the number of reports, and for each the birth and the generation of the
--         grant, the units that were spent, and those that are returned.
-- Stored  a string of little-endian doubles: the reign; what is used, of a bucket times its period; the time of a bucket,
--         or the number of a window; the period; the birth; the number of the generation; its length; the outstanding
--         units of it and of the one before; then for the last call of each region and reign: the region, the reign, the
--         number, the birth, the generation, the units, and the generation of the call.
-- Reply   the granted units, their birth and generation, the microseconds for which they may be spent, and the
--         microseconds until a unit is free. All are doubles in one string.
-- Effects the key expires when neither what is used nor the calls count any more.
-- Pitfalls the reign is half of master_replid. A server gets another one when it starts and when it is promoted: then
--         the clock may be another one, so what is out belongs to the next generation and has no birth. A text that this
--         script cannot have written counts as none, or its numbers would end each call with an error.
local call, unpack, format = redis.call, struct.unpack, string.format
local packed = ARGV[1]
local now, reign, amount, period, burst, length, most, fresh, region, from, number, want, held, reports, at =
  unpack('<dddddddddddddd', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if reign < 0 then
  reign = tonumber(string.sub(string.match(call('INFO', 'replication'), 'master_replid:(%x+)'), 1, 13), 16)
end
local function floor(number, unit)
  return (number - number % unit) / unit
end
local function ceil(number, unit)
  return floor(number + unit - 1, unit)
end
local scale, present = period, now
if amount == 0 then
  scale, present = 1, floor(now, period)
end
local largest = 9007199254740992
local function is_state(text)
  if not text or #text < 72 or #text % 56 ~= 16 then
    return false
  end
  for place = 1, #text, 8 do
    local word = unpack('<d', text, place)
    if not (word >= 0 and word <= largest and word % 1 == 0) then
      return false
    end
  end
  local divisor, _, _, span, recent, before = unpack('<dddddd', text, 25)
  return divisor > 0 and span > 0 and (recent + before) * (amount == 0 and 1 or divisor) <= largest
end
local stored, ledger = call('GET', KEYS[1]), {}
local ruled, used, level, under, birth, generation, terms, new, old = reign, 0, present, period, 0, 0, length, 0, 0
if is_state(stored) then
  ruled, used, level, under, birth, generation, terms, new, old = unpack('<ddddddddd', stored)
  for place = 73, #stored, 56 do
    ledger[#ledger + 1] = { unpack('<ddddddd', stored, place) }
  end
  if under ~= period then
    if amount == 0 then
      level = present
    else
      used = ceil(used, under) * period
    end
  end
  level = math.min(level, present)
end

-- What is used drains, or ends with its window.
local function settle(time)
  if amount == 0 then
    if floor(time, period) > level then
      used, level = 0, floor(time, period)
    end
  elseif time > level then
    used, level = math.max(used - (time - level) * amount, 0), time
  end
end

-- Generations that have passed end. What lapses may have been spent until then.
local age = floor(now, terms)
if ruled ~= reign and new + old > 0 or generation > age + 1 then
  birth, generation = 0, age + 1
end
while generation < age and new + old > 0 do
  generation = generation + 1
  if old > 0 then
    settle(generation * terms)
    used = used + old * scale
  end
  new, old = 0, new
end
settle(now)
if new + old == 0 then
  if terms ~= length then
    -- It counts in generations of another length, and nothing is out that it could repeat.
    ledger = {}
  end
  terms, birth, generation = length, 0, floor(now, length)
end
local kept, entry = {}, nil
for _, seen in ipairs(ledger) do
  if seen[7] + 2 >= age then
    kept[#kept + 1] = seen
    if seen[1] == region and seen[2] == from then
      entry = seen
    end
  end
end

-- The answer.
local units, grantor, granted = 0, 0, 0
local life = 0
if entry and entry[3] >= number then
  local left = math.min(math.max((entry[5] + 2) * terms - now, 0), 2 * terms)
  if entry[3] == number and entry[4] == birth and birth ~= 0 and left > 0 then
    units, grantor, granted, life = entry[6], entry[4], entry[5], left
  end
else
  for _ = 1, reports do
    local born, of, spent, returned
    born, of, spent, returned, at = unpack('<dddd', packed, at)
    local since = generation - of
    if born == birth and born ~= 0 and (since == 0 or since == 1) then
      local out = since == 0 and new or old
      spent = math.min(spent, out)
      returned = math.min(returned, out - spent)
      out, used = out - spent - returned, used + spent * scale
      if since == 0 then
        new = out
      else
        old = out
      end
    end
  end
  local has_room = entry or #kept < 64
  if has_room and terms == length then
    local free = math.max(burst - ceil(used, scale) - new - old, 0)
    local left, reserve = math.max(most - new - old, 0), floor(most, 16)
    if held > 0 then
      left = math.max(left - reserve, 0)
    elseif left <= reserve then
      left = math.min(left, math.max(floor(reserve, 2), 1))
    end
    units = math.min(want, ceil(free, 2), left)
  end
  if units > 0 then
    if birth == 0 or new + old == 0 then
      birth = fresh
    end
    new = new + units
  end
  if has_room then
    if not entry then
      entry = {}
      kept[#kept + 1] = entry
    end
    entry[1], entry[2], entry[3], entry[4], entry[5], entry[6], entry[7] =
      region, from, number, birth, generation, units, floor(now, terms)
  end
  grantor, granted = birth, generation
  life = math.min(math.max((generation + 2) * terms - now, 0), 2 * terms)
end

-- The time until a unit is free, and the state.
local retry, lasts
if amount > 0 then
  retry = ceil(math.max(used + (new + old + 1) * period - burst * period, 0), amount)
  lasts = ceil(used + (new + old) * period, amount)
else
  retry = used + new + old < burst and 0 or math.max((level + 1) * period - now, 0)
  lasts = period
end
local ends = now
if new + old > 0 then
  ends = math.max(now, (generation + 2) * terms)
end
ends = math.min(math.max(ends + lasts, now + 4 * terms), largest)
used, retry = math.min(used, largest), math.min(retry, largest)
local words = { struct.pack('<ddddddddd', reign, used, level, period, birth, generation, terms, new, old) }
for _, seen in ipairs(kept) do
  words[#words + 1] = struct.pack('<ddddddd', seen[1], seen[2], seen[3], seen[4], seen[5], seen[6], seen[7])
end
call('SET', KEYS[1], table.concat(words), 'PXAT', format('%.0f', floor(ends, 1000) + 1))
return struct.pack('<ddddd', units, grantor, granted, life, retry)
