-- permits: sets how many permits of a key one replica holds.
--
-- This is a complete script and not a frame. A replica calls it to take permits, to renew them and to give them back.
-- It states totals and no differences, so a call that is repeated changes nothing.
--
-- KEYS    1: the state.
-- ARGV    1: numbers, packed as little-endian doubles: the time in microseconds (below zero: the server's clock); the
--         limit; the number of the call, which grows with each call of a replica; the permits that it keeps if more
--         than the limit are held: those that it may have in use when the reply arrives; the permits that it has
--         handed out; the permits that it needs, those included; the permits that it wants on top; 1 if it waits for
--         permits that others hold idle, else 0; the time in microseconds after which its permits lapse. 2: the name
--         of the replica, 8 bytes.
-- Stored  a double, the time at which the state began, which only earlier versions read; then for each replica: its
--         name, the permits it holds and those it waits for (4 bytes each), and three doubles: the number of its last
--         call, the life of its permits, and the time at which they lapse.
-- Reply   the permits that the replica holds; the permits that all replicas hold; the permits that others wait for;
--         the outcome (0: granted as far as possible, 1: a later call of the replica was here, 2: its permits are
--         lost, 3: 64 other replicas hold permits).
-- Effects stores the permits of the replica, and drops those that lapsed. A call that a later one overtook, or that
--         leaves a replica without permits as it was, stores nothing.
-- Pitfalls the state may not have permits that a replica uses: it was lost, an older copy took its place, or the
--         clock went forward. They are counted again if all of them fit, and are lost otherwise. More permits than
--         the limit are held after it was lowered. None is granted then, and what comes back is taken.
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
