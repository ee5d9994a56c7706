-- sliding_log: admits at most `amount` units in any `period`, and denies only if that many are inside.
--
-- It stores the time of every admitted unit.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua.
--
-- KEYS    see the frame. ARGV: amount, period; the frame also passes the tag, empty for none (not
--         for refund.lua).
-- Stored  a list, newest first, with one entry for each unit: eight bytes, the time in microseconds
--         as a little-endian double, and then the tag.
-- Reply   four words: the units inside; the microseconds until the denied cost fits (0 if it fits
--         now); until no unit is inside; until one unit more than now would fit.
-- Effects admitted: one entry per unit is pushed, old entries are trimmed, and the key expires within
--         1 ms after the newest unit has left. Denied: single entries are read, nothing is written.
--         A key of another type is deleted when it is read.
-- Pitfalls the list is searched by bisection and must be in order of time: a new entry is never
--         older than the one before it, even when the clock is set back. Entries are pushed before
--         others are trimmed, because a list without entries is no key: where its slot is being moved
--         to another server, the next call on it would be refused.

--@ once
local spread = unpack
-- When the entry at a place was spent, no later than `latest`; what is no entry has left.
local function time_at(key, at, latest)
  local entry = redis.call('LINDEX', key, at)
  local time = entry and #entry >= 8 and struct.unpack('<d', entry) or 0
  if time > latest then
    return latest
  end
  return time >= 0 and time or 0
end
-- The number of entries. A key of another type has none. It is deleted before anything is written: where its slot is
-- being moved, the next call is refused, and the other server decides.
local function size_of(key)
  local size = redis.pcall('LLEN', key)
  if type(size) ~= 'number' then
    redis.call('DEL', key)
    size = redis.call('LLEN', key)
  end
  return size
end

--@ settle
local used_1, newest_1, oldest_1, mended_1 = 0, 0, 0, false
local size_1 = size_of(key_1)
if size_1 == 0 then
  newest_1 = now
else
  newest_1 = time_at(key_1, '0', now + period_1 + 1)
  if newest_1 > now + period_1 then
    newest_1, mended_1 = now, true
  end
  local edge, inside, gone, step = now - period_1, -1, size_1, 1
  if newest_1 > edge then
    local at = size_1 - 1
    while at >= 0 do
      local time = time_at(key_1, format('%d', at), newest_1)
      if time > edge then
        inside, oldest_1 = at, time
        break
      end
      gone, at, step = at, at - step, step * 2
    end
    while gone - inside > 1 do
      local at = math.floor((gone + inside) / 2)
      local time = time_at(key_1, format('%d', at), newest_1)
      if time > edge then
        inside, oldest_1 = at, time
      else
        gone = at
      end
    end
    used_1 = gone
  end
  mended_1 = mended_1 and used_1 > 0
end
local add_1 = 0

--@ fits
local fits_1 = cost_1 == 0 or used_1 + add_1 + cost_1 <= ceiling_1

--@ charge
add_1 = add_1 + cost_1
if used_1 == 0 then
  newest_1, oldest_1 = now, now
elseif newest_1 < now then
  newest_1 = now
end

--@ rewrite
local list = call('LRANGE', key_1, '0', format('%d', used_1 - 1))
for at, entry in ipairs(list) do
  if #entry >= 8 and unpack('<d', entry) > now then
    list[at] = pack('<dc0', now, entry:sub(9))
  end
end
for at = 1, used_1, 1000 do
  call('RPUSH', key_1, spread(list, at, math.min(at + 999, used_1)))
end
call('LTRIM', key_1, format('%d', -used_1), '-1')

--@ store
if mended_1 then
  --@ rewrite
end
if add_1 == 1 then
  call('LPUSH', key_1, pack('<dc0', newest_1, tag))
elseif add_1 > 0 then
  local entry, many = pack('<dc0', newest_1, tag), {}
  for at = 1, math.min(add_1, 1000) do
    many[at] = entry
  end
  for left = add_1, 1, -1000 do
    call('LPUSH', key_1, spread(many, 1, math.min(left, 1000)))
  end
end
if used_1 ~= size_1 and not mended_1 then
  call('LTRIM', key_1, '0', format('%d', used_1 + add_1 - 1))
end
local end_1 = newest_1 + period_1
call('PEXPIREAT', key_1, format('%d', (end_1 - end_1 % 1000) / 1000 + 1))

--@ spend
cost_1 = math.min(cost_1, math.min(amount_1 * 8, amount_1 + 100000) - used_1)
if cost_1 > 0 then
  --@ charge
end

--@ owe
--@ include spend
if cost_1 > 0 then
  --@ store
end

--@ told
do
  local tag = ''
  --@ store
end
used_1, size_1, add_1, mended_1 = used_1 + add_1, used_1 + add_1, 0, false

--@ held
local held_1 = math.min(amount_1 * 8, amount_1 + 100000) - used_1 - add_1
held_1 = math.max(math.min(held_1, book_1[4] + book_1[5]), 0)
local amount_1 = amount_1 - held_1

--@ held_words
if held_1 > 0 then
  third_1 = math.max(third_1, period_1)
  if not fits_1 and cost_1 > amount_1 then
    second_1 = third_1
  end
  if first_1 == 0 or amount_1 <= 0 then
    fourth_1 = third_1
  end
  first_1 = first_1 + held_1
end

--@ free
free = amount_1 - used_1 - add_1

--@ ends
local ends = last + period_1

--@ refund
if used_1 > 0 then
  local at, past, exact = 0, used_1, 0
  while at < past do
    local middle = math.floor((at + past) / 2)
    if time_at(key_1, format('%d', middle), newest_1) > spent then
      at = middle + 1
    else
      past = middle
    end
  end
  while exact < cost_1 and at + exact < used_1 and time_at(key_1, format('%d', at + exact), newest_1) == spent do
    exact = exact + 1
  end
  used_1 = used_1 - math.min(cost_1 - exact, used_1 - at - exact)
  if used_1 > exact then
    if mended_1 then
      --@ rewrite
    elseif used_1 ~= size_1 then
      call('LTRIM', key_1, '0', format('%d', used_1 - 1))
    end
    if exact > 0 then
      for gone = at, at + exact - 1 do
        call('LSET', key_1, format('%d', gone), '')
      end
      call('LREM', key_1, format('%d', exact), '')
      newest_1 = time_at(key_1, '0', newest_1)
    end
    local end_1 = newest_1 + period_1
    call('PEXPIREAT', key_1, format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
  else
    call('DEL', key_1)
  end
elseif size_1 ~= 0 then
  call('DEL', key_1)
end

--@ words
local first_1, second_1, third_1, fourth_1 = used_1 + add_1, 0, 0, 0
if first_1 > 0 then
  third_1, fourth_1 = newest_1 + period_1 - now, oldest_1
  if first_1 > amount_1 then
    fourth_1 = math.max(time_at(key_1, format('%d', amount_1 - 1), newest_1), oldest_1)
  end
  if not fits_1 then
    second_1 = oldest_1
    if ceiling_1 - cost_1 ~= first_1 - 1 then
      second_1 = math.max(time_at(key_1, format('%d', ceiling_1 - cost_1), newest_1), oldest_1)
    end
    second_1 = second_1 + period_1 - now
  end
  fourth_1 = fourth_1 + period_1 - now
end
