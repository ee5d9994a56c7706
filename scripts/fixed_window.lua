-- fixed_window: admits at most `amount` units in each window. Windows start at multiples of `period`.
--
-- KEYS    see the frame. ARGV: amount, period.
-- Stored  a string of three little-endian doubles: the start of the window in microseconds, the units spent in it,
--         and its period.
-- Reply   two words: the spent units, and the microseconds until the window ends.
-- Effects the key expires within 1 ms after the end of the window. Within the window only the count is written, in
--         place, with SETRANGE. The stored period shows whether the expiry is that of the window.
-- Pitfalls a window that lies ahead of the clock is kept if it is the next one, so that a clock that was set back a
--         little gives no unit twice. If it lies further ahead it is moved to now.

--# settle: reads what was spent in this window
--@ read
--@ hold_period
local used, start, mended, kept = 0, now - now % period, false, nil
if state and #state == 24 then
  local old_start, old_used, old_period = unpack('<ddd', state)
  if old_start >= start and old_used > 0 and old_used <= 9007199254740992 then
    used = old_used
    if old_start > now + period then
      mended = true
    elseif old_start > now then
      start = old_start - old_start % period
    end
    if old_start == start and old_period == period then
      kept = true
    end
  end
end

--# stored_period
if state and #state == 24 then
  local old_start, _, old_period = unpack('<ddd', state)
  local is_sound = old_period <= 9007199254740992 and old_period % 1 == 0
  if is_sound and old_start <= now and now < old_start + old_period then
    period = old_period
  end
end

--# fits: compares with the amount
fits = cost == 0 or used + cost <= ceiling

--# charge: spends the cost
used = used + cost

--# store: writes the state, with its expiry
if kept then
  call('SETRANGE', key, '8', pack('<d', used))
else
  local stop = start + period
  call('SET', key, pack('<ddd', start, used, period), 'PXAT', format('%d', (stop - stop % 1000) / 1000 + 1))
end

--# spend: charges, up to the most that is owed
cost = math.min(cost, amount * 8 - used)
if cost > 0 then
  --@ charge
end

--# owe: charges what does not fit
--@ spend
if cost > 0 then
  --@ store
end

--# held: the state with the outstanding units
local used = used
do
  local cost = book[4] + book[5]
  --@ spend
end

--# free
free = amount - used

--# share: a cascade takes what is left, while its cost is not covered. A cost of its own stays
local shares = cost < 0
if shares then
  local free
  --@ free
  cost = math.max(math.min(free, uncovered), 0)
  if undivided > 0 and cost < uncovered then
    cost = 0
  end
  uncovered = uncovered - cost
end

--# lack: what is not covered fits no policy that shares
if shares then
  cost = cost + uncovered
end

--# ends
local ends = last + period

--# refund: units of an earlier window are not given back
if spent >= start then
  used = used - cost
end
if used > 0 then
  --@ store
else
  call('DEL', key)
end

--# words: what the reply says
first, second = used, start + period - now
