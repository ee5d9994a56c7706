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
--         As many failures as `amount`, because that was lowered, are no lockout: they deny until their window ends. So
--         a lockout is marked: 10^15 is added to the failures. A time that lies ahead of the clock is moved back, so that no client waits longer than its lockout.

--# settle: reads the failures that count, and ends a lockout that is over
local failures, start, stop, level, ended, mended, known, out = 0, now, 0, 0, 0, false, false, false
--@ read
if state and #state == 40 then
  local old_start, old_stop, count, old_level, old_end = unpack('<ddddd', state)
  if old_start >= 0 and old_stop >= 0 and old_end >= 0 and count >= 0 and count <= 9007199254740992 and old_level >= 0 and old_level <= 64 then
    known = true
    local marked = count >= 1000000000000000
    if marked then
      count = count - 1000000000000000
    end
    local locked = marked and count > 0 and count >= amount
    if locked and old_stop <= now then
      old_level, old_end, count, locked = math.min(old_level + 1, 64), old_stop, 0, false
    end
    local most = now + math.min(lock * 2 ^ old_level, longest)
    mended = count > 0 and old_start > now or locked and old_stop > most or old_level > 0 and old_end > now
    old_start, old_end = math.min(old_start, now), math.min(old_end, now)
    if locked or count > 0 and now - old_start < period then
      failures, start = count, old_start
    end
    stop, out = locked and math.min(old_stop, most) or start + period, locked
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
if failures - cost < amount then
  stop = start + period
  if failures >= amount then
    stop, out = now + math.min(lock * 2 ^ level, longest), true
  end
end

--# fits: compares with the amount
fits = cost == 0 or failures + cost <= ceiling

--# store: writes the state, with its expiry
local fresh, mark = stop + longest, 1000000000000000
if failures == 0 or not out then
  mark = 0
  fresh = math.max(failures > 0 and stop or 0, level > 0 and ended + longest or 0)
end
if fresh > now then
  call('SET', key, pack('<ddddd', start, stop, failures + mark, level, ended), 'PXAT', format('%d', (fresh - fresh % 1000) / 1000 + 1))
else
  call('DEL', key)
end

--# owe: charges what does not fit; a lockout may be that of another amount, and stays
--@ raw
local lasts = open and out_before
if lasts then
  failures, start, stop, level, ended, out = raw[3], raw[1], raw[2], raw[4], raw[5], true
end
cost = math.max(math.min(cost, amount * 8 - failures), 0)
if cost > 0 then
  if lasts then
    failures = failures + cost
  else
    --@ charge
  end
  --@ store
end

--# refund: takes failures from a window or a lockout that is not over, which may be that of another amount
--@ raw
if open and spent >= raw[1] then
  failures, start, stop, level, ended, out = math.max(raw[3] - cost, 0), raw[1], raw[2], raw[4], raw[5], out_before
  if failures == 0 or raw[3] >= amount and failures < amount then
    stop, out = start + period, false
  end
  do
    --@ store
  end
end

--# raw: the failures as they are stored, whether they are open, and whether that is a lockout
local raw, open, out_before = known and { unpack('<ddddd', state) }, false, false
if raw then
  if raw[3] >= 1000000000000000 then
    raw[3], out_before = raw[3] - 1000000000000000, true
  end
  open = raw[3] > 0 and raw[2] > now
end

--# words: what the reply says
first, second, third, fourth = failures, 0, 0, 0
if failures > 0 then
  second = math.max(start + period - now, 0)
end
if out then
  third = stop - now
end
if level > 0 then
  fourth = math.max(ended + longest - now, 0)
end
