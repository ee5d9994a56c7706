-- tollgate, assembled for: SlidingWindow
local call, pcall = redis.call, redis.pcall
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, spent, amount_1, period_1
if #packed == 40 then
  now, cost_1, spent, amount_1, period_1 = unpack('<ddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  spent = ARGV[3] == '' and -1 or ARGV[3] + 0
  amount_1 = ARGV[4] + 0
  period_1 = ARGV[5] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if spent < 0 then
  spent = now + 1 + spent
end
local key_1 = KEYS[1]
local wide_1 = amount_1 * period_1 >= 9007199254740992
local current_1, previous_1, start_1, mended_1 = 0, 0, now - now % period_1, false
local state_1 = pcall('GET', key_1)
if state_1 and #state_1 == 24 then
  local start, current, previous = unpack('<ddd', state_1)
  if start >= start_1 - period_1 and current >= 0 and previous >= 0 and current + previous > 0 then
    if current > amount_1 or previous > amount_1 then
      local most = amount_1
      local is_owed = current >= 1000000000000000
      if current >= 1000000000000000 then
        current = current - 1000000000000000
      end
      if is_owed then
        most = math.min(amount_1 * 8, 4294967295)
      end
      if current > most or previous > most then
        current, previous, mended_1 = math.min(current, most), math.min(previous, most), true
      end
    end
    if start > now + period_1 then
      mended_1 = true
    elseif start > now then
      start_1 = start - start % period_1
    elseif start < start_1 then
      current, previous = 0, current
    end
    current_1, previous_1 = current, previous
    mended_1 = mended_1 and current + previous > 0
  end
end
local left_1 = start_1 + period_1 - now
if cost_1 > 0 then
  if spent >= start_1 then
    current_1 = math.max(current_1 - cost_1, 0)
  elseif spent >= start_1 - period_1 then
    previous_1 = math.max(previous_1 - cost_1, 0)
  end
  if current_1 + previous_1 > 0 then
    if current_1 > amount_1 then
      local end_1 = start_1 + period_1 * 2
      call('SET', key_1, pack('<ddd', start_1, current_1 + 1000000000000000, previous_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
    else
      local end_1 = start_1 + period_1
      if current_1 > 0 then
        end_1 = end_1 + period_1
      end
      if previous_1 > amount_1 then
        call('SET', key_1, pack('<ddd', start_1, current_1 + 1000000000000000, previous_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
      else
        call('SET', key_1, pack('<ddd', start_1, current_1, previous_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
      end
    end
  else
    call('DEL', key_1)
  end
end
return 1
