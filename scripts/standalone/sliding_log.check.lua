-- tollgate: check for sliding_log
--
-- check: decides one request of one subject. Charges all policies, or none.
--
-- KEYS    one per policy, all with the same hash tag.
-- ARGV    1: numbers, packed as little-endian doubles, which is the cheapest form: the time in microseconds (below
--         zero: the server's clock); the cost for each policy (0: read without charging); then the numbers of each
--         policy, see its file. 2: the tag, only if a policy is a log. For use by hand, the numbers may be separate
--         decimal arguments, and the tag comes after them. The caller must check that cost <= burst, and the limits
--         of each algorithm, see README.md.
-- Stored  for each policy, see its file.
-- Reply   the words of each policy, see its file; the first word is -1 - word if that policy denies. At the end the
--         time. A single word is returned alone, without the time.
-- Effects admitted: one SET with PXAT or one SETRANGE per policy, see its file. Denied: nothing, except that a state
--         which lies impossibly far ahead of the clock is stored again in its corrected form (mended).
-- Pitfalls TIME may advance within a script on Redis before 7.2, so it is read once. Numbers are passed to commands
--         with format('%d'): `..` and tostring cut a time to 14 digits. Several keys are read at once, before
--         anything is written: where their slot is being moved, a call on a key that expired is refused.
--
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
local call, pcall, all = redis.call, redis.pcall, unpack
local pack, unpack, format = struct.pack, struct.unpack, string.format
local states = #KEYS > 1 and call('MGET', all(KEYS))
-- functions: when an entry was spent, and the number of entries
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
local packed, next_arg, tag = ARGV[1], 2
local form = '<dddd'
if #packed < 32 then
  local numbers = {}
  for at = 1, #form - 1 do
    numbers[at] = (ARGV[at] == '' and -1 or ARGV[at]) + 0
  end
  packed, next_arg = pack(form, all(numbers)), #form
end
local now, cost, amount, period = unpack(form, packed)
tag = ARGV[next_arg]
next_arg = next_arg + 1
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key = KEYS[1]
-- settle: searches for the oldest entry inside
local used, newest, oldest, mended = 0, 0, 0, false
local size = states and states[1]
if type(size) ~= 'number' then
  size = size_of(key)
end
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
local fits
-- fits: compares with the amount
fits = cost == 0 or used + add + cost <= amount
local admitted = fits
if admitted then
  if cost > 0 then
    -- charge: spends the cost
    add = add + cost
    if used == 0 then
      newest, oldest = now, now
    elseif newest < now then
      newest = now
    end
    -- store: pushes the new entries, and trims those that have left
    if mended then
      -- rewrite: replaces entries that lie ahead of the clock
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
  end
else
  if cost > 0 then
    -- mend: stores what was corrected
    if mended then
      -- store: pushes the new entries, and trims those that have left
      if mended then
        -- rewrite: replaces entries that lie ahead of the clock
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
    end
  end
end
local first, second, third, fourth
-- words: what the reply says
first, second, third, fourth = used + add, 0, 0, 0
if first > 0 then
  third, fourth = newest + period - now, oldest
  if first > amount then
    fourth = math.max(time_at(key, format('%d', amount - 1), newest), oldest)
  end
  if not fits then
    second = oldest
    if amount - cost ~= first - 1 then
      second = math.max(time_at(key, format('%d', amount - cost), newest), oldest)
    end
    second = second + period - now
  end
  fourth = fourth + period - now
end
-- denial: the first word of a policy that denies is below zero
if not fits then
  first = -1 - first
end
return { first, second, third, fourth, now }
