-- tollgate, assembled for: SlidingWindow
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, amount_1, period_1, length_1, most_1
if #packed == 48 then
  now, cost_1, amount_1, period_1, length_1, most_1 = unpack('<dddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  amount_1 = ARGV[3] + 0
  period_1 = ARGV[4] + 0
  length_1 = ARGV[5] + 0
  most_1 = ARGV[6] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key_1 = KEYS[1]
local account_1 = KEYS[2]
local wide_1 = amount_1 * period_1 >= 9007199254740992
local told_1 = false
local book_1 = { 0, length_1, (now - now % length_1) / length_1, 0, 0 }
local stored_1, until_1 = states[1], nil
local leased_1 = states[2]
if leased_1 and #leased_1 == 40 then
  local birth, length, generation, new, old = unpack('<ddddd', leased_1)
  local present = (now - now % length) / length
  if generation > present + 1 then
    birth, generation, told_1 = 0, present + 1, true
  end
  while generation < present and new + old > 0 do
    if old > 0 then
      local alive, now, cost_1 = now, (generation + 1) * length, old
      local function call(_, _, value, _, time)
        stored_1, until_1 = value, time + 0
      end
      local current_1, previous_1, start_1, mended_1 = 0, 0, now - now % period_1, false
      local state_1 = stored_1
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
      local kept_1
      cost_1 = math.min(cost_1, math.min(amount_1 * 8, 4294967295) - current_1)
      if cost_1 > 0 then
        current_1 = current_1 + cost_1
      end
      if cost_1 > 0 then
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
    generation, new, old, told_1 = generation + 1, 0, new, true
  end
  if new + old > 0 then
    book_1 = { birth, length, generation, new, old }
  end
end
if until_1 then
  call('SET', key_1, stored_1, 'PXAT', format('%d', math.max(until_1, (now - now % 1000) / 1000 + 1)))
end
local current_1, previous_1, start_1, mended_1 = 0, 0, now - now % period_1, false
local state_1 = stored_1
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
if told_1 then
  local last = (book_1[3] + 2) * book_1[2]
  if book_1[4] + book_1[5] > 0 then
    local ends = last + 2 * period_1
    local ends = ends - ends % 1000
    call('SET', account_1, pack('<ddddd', book_1[1], book_1[2], book_1[3], book_1[4], book_1[5]), 'PXAT', format('%d', ends / 1000 + 1))
  else
    call('DEL', account_1)
  end
end
local leaves_1 = true
if cost_1 > 0 and book_1[4] + book_1[5] > 0 then
  local current_1 = current_1
  do
    local cost_1 = book_1[4] + book_1[5]
    cost_1 = math.min(cost_1, math.min(amount_1 * 8, 4294967295) - current_1)
    if cost_1 > 0 then
      current_1 = current_1 + cost_1
    end
  end
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
  leaves_1 = fits_1
end
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
fits_1 = fits_1 and leaves_1
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
local first_1, second_1, third_1, fourth_1 = 0, 0, 0, 0
do
  local current_1 = current_1
  do
    local cost_1 = book_1[4] + book_1[5]
    cost_1 = math.min(cost_1, math.min(amount_1 * 8, 4294967295) - current_1)
    if cost_1 > 0 then
      current_1 = current_1 + cost_1
    end
  end
  first_1, second_1, third_1 = current_1, previous_1, left_1
end
if not fits_1 and book_1[4] + book_1[5] > 0 and cost_1 + book_1[4] + book_1[5] > amount_1 then
  fourth_1 = math.max(fourth_1, (book_1[3] + (book_1[4] > 0 and 2 or 1)) * book_1[2] - now)
end
if not fits_1 then first_1 = -1 - first_1 end
return { first_1, second_1, third_1, fourth_1, now }
