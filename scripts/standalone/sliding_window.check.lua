-- tollgate, assembled for: SlidingWindow
local call, pcall = redis.call, redis.pcall
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, amount_1, period_1
if #packed == 32 then
  now, cost_1, amount_1, period_1 = unpack('<dddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  amount_1 = ARGV[3] + 0
  period_1 = ARGV[4] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
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
local fits_1 = cost_1 == 0
  or previous_1 * math.min(left_1, period_1) <= (amount_1 - current_1 - cost_1) * period_1
if wide_1 and cost_1 > 0 then
  local function muldiv(a, b, c)
    local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
    while power * base <= b do
      power = power * base
    end
    repeat
      local digit = math.floor(b / power)
      local sum = rest * base + a * digit
      rest = sum % c
      whole = whole * base + (sum - rest) / c
      b, power = b - digit * power, power / base
    until power < 1
    return whole, rest
  end
  local share, part = muldiv(math.min(left_1, period_1), previous_1, period_1)
  fits_1 = share < amount_1 - current_1 - cost_1 or share == amount_1 - current_1 - cost_1 and part == 0
end
local admitted = fits_1
if admitted then
  if cost_1 > 0 then
    current_1 = current_1 + cost_1
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
  if cost_1 > 0 then
    if mended_1 then
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
    end
  end
end
local first_1, second_1, third_1 = current_1, previous_1, left_1
if not fits_1 then first_1 = -1 - first_1 end
return { first_1, second_1, third_1, now }
