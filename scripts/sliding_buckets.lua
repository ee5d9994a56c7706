-- sliding_buckets: admits at most `amount` units in any period, with a counter for each sub-window.
--
-- The current bucket and the `buckets` before it count in full, so no interval of one period ever
-- contains more than `amount`.
--
-- Sections for the frames check.lua, batch.lua, mixed.lua and refund.lua.
--
-- KEYS    see the frame. ARGV: amount, the width of a bucket in microseconds (period / buckets,
--         rounded up), buckets.
-- Stored  a string: three little-endian doubles (the width, the number of the newest bucket since
--         the epoch, the sum of all units); then, for each bucket that is not empty, oldest first,
--         two bytes of its number and four bytes of its units.
-- Reply   four words: the units that count; the microseconds until the denied cost fits (0 if it
--         fits now); until no unit counts; until one unit more than now would fit.
-- Effects the key expires within 1 ms after the newest bucket no longer counts.
-- Pitfalls a stored width that differs shows that the period or the number of buckets was changed.
--         Each bucket is then placed at the latest time at which its units can have been spent.

--@ settle
local now_at_1 = (now - now % width_1) / width_1
local used_1, newest_1, from_1, mended_1 = 0, now_at_1, 25, false
local state_1 = pcall('GET', key_1)
local size_1 = state_1 and #state_1 or 0
if size_1 >= 30 and size_1 % 6 == 0 then
  local width, newest, total = unpack('<ddd', state_1)
  if width == width_1 and newest <= now_at_1 + buckets_1 then
    if total <= 4294967295 then
      local first = math.max(newest, now_at_1) - buckets_1
      used_1, newest_1 = total, newest
      repeat
        local at, count = unpack('<I2I4', state_1, from_1)
        local stays = newest - (newest - at) % 65536 >= first
        if not stays then
          used_1, from_1 = used_1 - count, from_1 + 6
        end
      until stays or from_1 > size_1
    end
  elseif width > 0 then
    local list, last, sum = '', 0, 0
    for from = 25, size_1, 6 do
      local at, count = unpack('<I2I4', state_1, from)
      at = math.min((newest - (newest - at) % 65536 + 1) * width - 1, now)
      at = (at - at % width_1) / width_1
      if at >= now_at_1 - buckets_1 then
        if at ~= last and sum > 0 then
          list, sum = pack('<c0I2I4', list, last % 65536, sum), 0
        end
        used_1, last, sum = used_1 + count, at, sum + count
      end
    end
    if used_1 > 0 then
      newest_1, mended_1 = last, true
      state_1 = pack('<dddc0I2I4', width_1, last, used_1, list, last % 65536, sum)
    end
  end
end
if not (used_1 > 0) or from_1 > size_1 then
  used_1, newest_1, from_1, state_1 = 0, now_at_1, 25, ''
end

--@ fits
local fits_1 = cost_1 == 0 or used_1 + cost_1 <= ceiling_1

--@ charge
local to_1, sum_1 = #state_1, cost_1
if used_1 > 0 and newest_1 >= now_at_1 then
  sum_1, to_1 = cost_1 + unpack('<I4', state_1, to_1 - 3), to_1 - 6
else
  newest_1 = now_at_1
end
used_1 = used_1 + cost_1
state_1 = pack('<dddc0I2I4', width_1, newest_1, used_1, state_1:sub(from_1, to_1), newest_1 % 65536, sum_1)
from_1 = 25

--@ store
local end_1 = (newest_1 + buckets_1 + 1) * width_1
call('SET', key_1, state_1, 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))

--@ spend
cost_1 = math.min(cost_1, math.min(amount_1 * 8, 4294967295) - used_1)
if cost_1 > 0 then
  --@ charge
end

--@ owe
--@ include spend
if cost_1 > 0 then
  --@ store
end

--@ held
local used_1, newest_1, from_1, state_1 = used_1, newest_1, from_1, state_1
do
  local cost_1 = book_1[4] + book_1[5]
  --@ spend
end

--@ free
free = amount_1 - used_1

--@ ends
local ends = last + (buckets_1 + 2) * width_1

--@ refund
if used_1 > 0 then
  local at_spent, exact = (spent - spent % width_1) / width_1, 0
  for from = from_1, #state_1, 6 do
    local at, count = unpack('<I2I4', state_1, from)
    if newest_1 - (newest_1 - at) % 65536 == at_spent then
      exact = math.min(count, cost_1)
    end
  end
  local older, list, last = cost_1 - exact, '', 0
  used_1 = 0
  for from = from_1, #state_1, 6 do
    local at, count = unpack('<I2I4', state_1, from)
    at = newest_1 - (newest_1 - at) % 65536
    local back = 0
    if at == at_spent then
      back = exact
    elseif at < at_spent then
      back = math.min(count, older)
      older = older - back
    end
    if count > back then
      list, last, used_1 = pack('<c0I2I4', list, at % 65536, count - back), at, used_1 + count - back
    end
  end
  newest_1 = last
  state_1 = pack('<dddc0', width_1, last, used_1, list)
end
if used_1 > 0 then
  --@ store
else
  call('DEL', key_1)
end

--@ words
local first_1, second_1, third_1, fourth_1 = used_1, 0, 0, 0
if used_1 > 0 then
  third_1 = (newest_1 + buckets_1 + 1) * width_1 - now
  local some, all, left, from = math.max(used_1 + 1 - amount_1, 1), 0, 0, from_1
  if not fits_1 then
    all = used_1 + cost_1 - ceiling_1
  end
  while (left < some or left < all) and from < #state_1 do
    local at, count = unpack('<I2I4', state_1, from)
    local leaves = (newest_1 - (newest_1 - at) % 65536 + buckets_1 + 1) * width_1 - now
    if left < some then
      fourth_1 = leaves
    end
    if left < all then
      second_1 = leaves
    end
    left, from = left + count, from + 6
  end
end
