-- sliding_log: admits at most `amount` units in any `period`, and denies only if that many are inside.
--
-- It stores the time of every admitted unit.
--
-- KEYS    see the frame. ARGV: amount, period; the frame also passes the tag, empty for none (not for refund.lua).
-- Stored  a list, newest first, with one entry for each unit: eight bytes, the time in microseconds as a
--         little-endian double, and then the tag.
-- Reply   four words: the units inside; the microseconds until the denied cost fits (0 if it fits now); until no unit
--         is inside; until one unit more than now would fit.
-- Effects admitted: one entry per unit is pushed, old entries are trimmed, and the key expires within 1 ms after the
--         newest unit has left. Denied: single entries are read, nothing is written. A key of another type is deleted
--         when it is read.
-- Pitfalls the list is searched by bisection and must be in order of time: a new entry is never older than the one
--         before it, even when the clock is set back. Entries are pushed before others are trimmed, because a list
--         without entries is no key: where its slot is being moved to another server, the next call on it would be
--         refused.

--# functions: when an entry was spent, and the number of entries
-- An entry was spent no later than `latest`. What is no entry has left.
local function time_at(log, index, latest)
  local entry = redis.call('LINDEX', log, index)
  local time = entry and #entry >= 8 and struct.unpack('<d', entry) or 0
  if time > latest then
    return latest
  end
  return time >= 0 and time or 0
end
-- A key of another type has no entries. It is deleted before anything is written: where its slot is being moved, the
-- next call is refused, and the other server decides.
local function size_of(log)
  local entries = redis.pcall('LLEN', log)
  if type(entries) ~= 'number' then
    redis.call('DEL', log)
    entries = redis.call('LLEN', log)
  end
  return entries
end

--# tag
tag = ARGV[next_arg]
next_arg = next_arg + 1

--# tag_of_subject
tag = ARGV[at / <keys> + 2]

--# sizes: reads the number of entries of each log, before anything is written
for at = 0, #KEYS - <keys>, <keys> do
  states[<place>] = size_of(KEYS[<place>])
end

--# size
local size = states and states[<place>]
if type(size) ~= 'number' then
  size = size_of(key)
end

--# settle: searches for the oldest entry inside
local used, newest, oldest, mended = 0, 0, 0, false
--@ size
if size == 0 then
  newest = now
else
  newest = time_at(key, '0', now + period + 1)
  if newest > now + period then
    newest, mended = now, true
  end
  local edge, inside, gone, stride = now - period, -1, size, 1
  if newest > edge then
    local at = size - 1
    while at >= 0 do
      local time = time_at(key, format('%d', at), newest)
      if time > edge then
        inside, oldest = at, time
        break
      end
      gone, at, stride = at, at - stride, stride * 2
    end
    while gone - inside > 1 do
      local at = math.floor((gone + inside) / 2)
      local time = time_at(key, format('%d', at), newest)
      if time > edge then
        inside, oldest = at, time
      else
        gone = at
      end
    end
    used = gone
  end
  mended = mended and used > 0
end
local add = 0

--# fits: compares with the amount
fits = cost == 0 or used + add + cost <= ceiling

--# charge: spends the cost
add = add + cost
if used == 0 then
  newest, oldest = now, now
elseif newest < now then
  newest = now
end

--# rewrite: replaces entries that lie ahead of the clock
local list = call('LRANGE', key, '0', format('%d', used - 1))
for at, entry in ipairs(list) do
  if #entry >= 8 and unpack('<d', entry) > now then
    list[at] = pack('<dc0', now, entry:sub(9))
  end
end
for at = 1, used, 1000 do
  call('RPUSH', key, all(list, at, math.min(at + 999, used)))
end
call('LTRIM', key, format('%d', -used), '-1')

--# store: pushes the new entries, and trims those that have left
if mended then
  --@ rewrite
end
if add == 1 then
  call('LPUSH', key, pack('<dc0', newest, tag))
elseif add > 0 then
  local entry, many = pack('<dc0', newest, tag), {}
  for at = 1, math.min(add, 1000) do
    many[at] = entry
  end
  for left = add, 1, -1000 do
    call('LPUSH', key, all(many, 1, math.min(left, 1000)))
  end
end
if used ~= size and not mended then
  call('LTRIM', key, '0', format('%d', used + add - 1))
end
local stop = newest + period
call('PEXPIREAT', key, format('%d', (stop - stop % 1000) / 1000 + 1))

--# spend: charges, up to the most that is owed
cost = math.min(cost, math.min(amount * 8, amount + 100000) - used)
if cost > 0 then
  --@ charge
end

--# owe: charges what does not fit
--@ spend
if cost > 0 then
  --@ store
end

--# lapse_read
--# lapse_write: what lapses is stored at once, and expires in the future
local send = call
local function call(name, key, ...)
  if name == 'PEXPIREAT' then
    return send(name, key, format('%d', math.max((...) + 0, (alive - alive % 1000) / 1000 + 1)))
  end
  return send(name, key, ...)
end

--# lapse_store
--# reported: a list is stored at once
do
  local tag = ''
  --@ store
end
used, size, add, mended = used + add, used + add, 0, false

--# held: the amount without the outstanding units
local out = math.min(amount * 8, amount + 100000) - used - add
out = math.max(math.min(out, book[4] + book[5]), 0)
local amount = amount - out

--# held_words
if out > 0 then
  third = math.max(third, period)
  if not fits and cost > amount then
    second = third
  end
  if first == 0 or amount <= 0 then
    fourth = third
  end
  first = first + out
end

--# late
second = math.max(second, late)

--# free
free = amount - used - add

--# ends
local ends = last + period

--# refund: takes back the units that were spent at that time, then older ones
if used > 0 then
  local at, past, exact = 0, used, 0
  while at < past do
    local middle = math.floor((at + past) / 2)
    if time_at(key, format('%d', middle), newest) > spent then
      at = middle + 1
    else
      past = middle
    end
  end
  while exact < cost and at + exact < used and time_at(key, format('%d', at + exact), newest) == spent do
    exact = exact + 1
  end
  used = used - math.min(cost - exact, used - at - exact)
  if used > exact then
    if mended then
      --@ rewrite
    elseif used ~= size then
      call('LTRIM', key, '0', format('%d', used - 1))
    end
    if exact > 0 then
      for gone = at, at + exact - 1 do
        call('LSET', key, format('%d', gone), '')
      end
      call('LREM', key, format('%d', exact), '')
      newest = time_at(key, '0', newest)
    end
    local stop = newest + period
    call('PEXPIREAT', key, format('%d', (stop - stop % 1000) / 1000 + 1))
  else
    call('DEL', key)
  end
elseif size ~= 0 then
  call('DEL', key)
end

--# words: what the reply says
first, second, third, fourth = used + add, 0, 0, 0
if first > 0 then
  third, fourth = newest + period - now, oldest
  if first > amount then
    fourth = math.max(time_at(key, format('%d', amount - 1), newest), oldest)
  end
  if not fits then
    second = oldest
    if ceiling - cost ~= first - 1 then
      second = math.max(time_at(key, format('%d', ceiling - cost), newest), oldest)
    end
    second = second + period - now
  end
  fourth = fourth + period - now
end
