-- tollgate, assembled for: all policies
local call, pcall = redis.call, redis.pcall
local pack, unpack, format = struct.pack, struct.unpack, string.format
local now, limit, number, kept, used, needed, extra, waits, life = unpack('<ddddddddd', ARGV[1])
local replica = ARGV[2]
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local state, began = pcall('GET', KEYS[1]), now
if type(state) == 'string' and #state % 40 == 8 then
  began = unpack('<d', state)
else
  state = ''
end
local parts, others, wanted, last, changed = { pack('<d', began) }, 0, 0, now, false
local held, previous, found = 0, 0, false
for at = 9, #state, 40 do
  local name, has, awaits, its_number, its_life, lapses = unpack('<c8I4I4ddd', state, at)
  if lapses > now + its_life then
    -- The clock went back.
    lapses, changed = now + its_life, true
  end
  if lapses > now then
    if name == replica then
      held, previous, found = has, its_number, true
    else
      others = others + has
      wanted = wanted + math.max(awaits - has, 0)
      last = math.max(last, lapses)
      parts[#parts + 1] = pack('<c8I4I4ddd', name, has, awaits, its_number, its_life, lapses)
    end
  end
end
if previous >= number then
  return { held, others + held, wanted, 1 }
end
local outcome = 0
if used > 0 and not found and others + used > limit then
  outcome, needed, extra = 2, 0, 0
end
if others + held > limit then
  -- The limit was lowered.
  held = math.min(held, kept)
end
if needed + extra < held then
  held = needed + extra
else
  local free = limit - others - held
  if needed > held and free > 0 then
    local grant = math.min(needed - held, free)
    held, free = held + grant, free - grant
  end
  if wanted == 0 and free > 1 then
    held = held + math.min(needed + extra - held, math.floor(free / 2))
  end
end
if held > 0 and #parts > 64 then
  outcome, held, needed = 3, 0, 0
end
if waits == 0 or #parts > 64 then
  needed = 0
end
if held > 0 or needed > 0 then
  last = math.max(last, now + life)
  parts[#parts + 1] = pack('<c8I4I4ddd', replica, held, needed, number, life, now + life)
  changed = true
elseif found then
  changed = true
end
if changed and #parts == 1 then
  call('DEL', KEYS[1])
elseif changed then
  call('SET', KEYS[1], table.concat(parts), 'PXAT', format('%d', (last - last % 1000) / 1000 + 1))
end
return { held, others + held, wanted, outcome }
