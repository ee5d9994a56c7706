-- lockout: counts failures in windows of `period` that the first failure opens. `amount` of them lock the key for a
-- time: `lock` for the first time, then twice the time before, at most `longest`.
--
-- KEYS    see the frame. ARGV: amount, period, lock, longest.
-- Stored  a string of five little-endian doubles: the start of the window; its end, or that of the lockout; the
--         failures; the lockouts that have ended; the end of the last one. Times are in microseconds.
-- Reply   four words: the failures, and the microseconds until the window closes, until the lockout ends, and until
--         the lockouts that have ended are forgotten (0: there is none).
-- Effects the key expires within 1 ms after its failures are forgotten, and `longest` after a lockout. A charge to a
--         locked key counts, and does not prolong the lockout.
-- Pitfalls a refund takes back only failures of the window that counts, and with them the lockout to which they led.
--         A time that lies ahead of the clock is moved back, so that no client waits longer than its lockout.

--# settle: reads the failures that count, and ends a lockout that is over
local failures, start, stop, level, ended, mended = 0, now, 0, 0, 0, false
--@ read
if state and #state == 40 then
  local old_start, old_stop, count, old_level, old_end = unpack('<ddddd', state)
  if old_start >= 0 and old_stop >= 0 and old_end >= 0 and count >= 0 and count <= 9007199254740992 and old_level >= 0 and old_level <= 64 then
    if count > 0 and count >= amount and old_stop <= now then
      old_level, old_end, count = math.min(old_level + 1, 64), old_stop, 0
    end
    local most = now + math.min(lock * 2 ^ old_level, longest)
    local locked = count > 0 and count >= amount
    mended = count > 0 and old_start > now or locked and old_stop > most or old_level > 0 and old_end > now
    old_start, old_end = math.min(old_start, now), math.min(old_end, now)
    if locked or count > 0 and now - old_start < period then
      failures, start = count, old_start
    end
    if locked then
      stop = math.min(old_stop, most)
    end
    if old_level > 0 and (locked or now - old_end < longest) then
      level, ended = old_level, old_end
    end
  end
end

--# charge: spends the cost
if failures == 0 then
  start = now
end
failures = failures + cost
if failures >= amount and failures - cost < amount then
  stop = now + math.min(lock * 2 ^ level, longest)
end

--# fits: compares with the amount
fits = cost == 0 or failures + cost <= ceiling

--# store: writes the state, with its expiry
local closes = stop
local fresh = stop + longest
if failures == 0 or failures < amount then
  closes = start + period
  fresh = math.max(failures > 0 and closes or 0, level > 0 and ended + longest or 0)
end
if fresh > now then
  call('SET', key, pack('<ddddd', start, closes, failures, level, ended), 'PXAT', format('%d', (fresh - fresh % 1000) / 1000 + 1))
else
  call('DEL', key)
end

--# owe: charges what does not fit
cost = math.min(cost, amount * 8 - failures)
if cost > 0 then
  --@ charge
  --@ store
end

--# refund: failures of an earlier window are not taken back
if spent >= start then
  failures = math.max(failures - cost, 0)
end
do
  --@ store
end

--# words: what the reply says
first, second, third, fourth = failures, 0, 0, 0
if failures > 0 then
  second = math.max(start + period - now, 0)
end
if failures > 0 and failures >= amount then
  third = stop - now
end
if level > 0 then
  fourth = math.max(ended + longest - now, 0)
end
