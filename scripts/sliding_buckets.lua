-- sliding_buckets: admits at most `amount` units in any period, with a counter for each sub-window.
--
-- The current bucket and the `buckets` before it count in full, so no interval of one period ever contains more than
-- `amount`.
--
-- KEYS    see the frame. ARGV: amount, the width of a bucket in microseconds (period / buckets, rounded up), buckets.
-- Stored  a string: three little-endian doubles (the width, the number of the newest bucket since the epoch, the sum
--         of all units); then, for each bucket that is not empty, oldest first, two bytes of its number and four
--         bytes of its units.
-- Reply   four words: the units that count; the microseconds until the denied cost fits (0 if it fits now); until no
--         unit counts; until one unit more than now would fit.
-- Effects the key expires within 1 ms after the newest bucket no longer counts.
-- Pitfalls a stored width that differs shows that the period or the number of buckets was changed. Each bucket is
--         then placed at the latest time at which its units can have been spent.

--# settle: reads the buckets that count
local now_at = (now - now % width) / width
local used, newest, from, mended = 0, now_at, 25, false
--@ read
local size = state and #state or 0
if size >= 30 and size % 6 == 0 then
  local old_width, old_newest, total = unpack('<ddd', state)
  if old_width == width and old_newest <= now_at + buckets then
    if total <= 4294967295 then
      local oldest = math.max(old_newest, now_at) - buckets
      used, newest = total, old_newest
      repeat
        local at, count = unpack('<I2I4', state, from)
        local stays = old_newest - (old_newest - at) % 65536 >= oldest
        if not stays then
          used, from = used - count, from + 6
        end
      until stays or from > size
    end
  elseif old_width > 0 then
    local list, last, sum = '', 0, 0
    for place = 25, size, 6 do
      local at, count = unpack('<I2I4', state, place)
      at = math.min((old_newest - (old_newest - at) % 65536 + 1) * old_width - 1, now)
      at = (at - at % width) / width
      if at >= now_at - buckets then
        if at ~= last and sum > 0 then
          list, sum = pack('<c0I2I4', list, last % 65536, sum), 0
        end
        used, last, sum = used + count, at, sum + count
      end
    end
    if used > 0 then
      newest, mended = last, true
      state = pack('<dddc0I2I4', width, last, used, list, last % 65536, sum)
    end
  end
end
if not (used > 0) or from > size then
  used, newest, from, state = 0, now_at, 25, ''
end

--# fits: compares with the amount
fits = cost == 0 or used + cost <= ceiling

--# charge: spends the cost
local to, sum = #state, cost
if used > 0 and newest >= now_at then
  sum, to = cost + unpack('<I4', state, to - 3), to - 6
else
  newest = now_at
end
used = used + cost
state = pack('<dddc0I2I4', width, newest, used, state:sub(from, to), newest % 65536, sum)
from = 25

--# store: writes the state, with its expiry
local stop = (newest + buckets + 1) * width
call('SET', key, state, 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))

--# spend: charges, up to the most that is owed
cost = math.min(cost, math.min(amount * 8, 4294967295) - used)
if cost > 0 then
  --@ charge
end

--# owe: charges what does not fit
--@ spend
if cost > 0 then
  --@ store
end

--# held: the state with the outstanding units
local used, newest, from, state = used, newest, from, state
do
  local cost = book[4] + book[5]
  --@ spend
end

--# late
second = math.max(second, late)

--# free
free = amount - used

--# ends
local ends = last + (buckets + 2) * width

--# refund: takes units back from the bucket in which they were spent, then from older ones
if used > 0 then
  local at_spent, exact = (spent - spent % width) / width, 0
  for place = from, #state, 6 do
    local at, count = unpack('<I2I4', state, place)
    if newest - (newest - at) % 65536 == at_spent then
      exact = math.min(count, cost)
    end
  end
  local older, list, last = cost - exact, '', 0
  used = 0
  for place = from, #state, 6 do
    local at, count = unpack('<I2I4', state, place)
    at = newest - (newest - at) % 65536
    local back = 0
    if at == at_spent then
      back = exact
    elseif at < at_spent then
      back = math.min(count, older)
      older = older - back
    end
    if count > back then
      list, last, used = pack('<c0I2I4', list, at % 65536, count - back), at, used + count - back
    end
  end
  newest = last
  state = pack('<dddc0', width, last, used, list)
end
if used > 0 then
  --@ store
else
  call('DEL', key)
end

--# words: what the reply says
first, second, third, fourth = used, 0, 0, 0
if used > 0 then
  third = (newest + buckets + 1) * width - now
  local some, most, gone, place = math.max(used + 1 - amount, 1), 0, 0, from
  if not fits then
    most = used + cost - ceiling
  end
  while (gone < some or gone < most) and place < #state do
    local at, count = unpack('<I2I4', state, place)
    local leaves = (newest - (newest - at) % 65536 + buckets + 1) * width - now
    if gone < some then
      fourth = leaves
    end
    if gone < most then
      second = leaves
    end
    gone, place = gone + count, place + 6
  end
end
