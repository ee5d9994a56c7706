-- tollgate, assembled for: SlidingWindow
local call, pcall, all = redis.call, redis.pcall, unpack
local states = call('MGET', all(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, next_byte = unpack('<d', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local each = 1
local replies, place = {}, 0
for at = 0, #KEYS - each, each do
  local key_1 = KEYS[at + 1]
  local amount_1, period_1, runs, cost_1, count
  local limits = {}
  amount_1, period_1, runs, cost_1, limits.ceiling_1, count, next_byte = unpack('<dddddd', packed, next_byte)
  local wide_1 = amount_1 * period_1 >= 9007199254740992
  local current_1, previous_1, start_1, mended_1 = 0, 0, now - now % period_1, false
  local state_1 = states[at + 1]
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
  local use_1 = 0
  for run = 1, runs do
    local granted = 0
    local fits_1
    repeat
      fits_1 = cost_1 == 0
        or previous_1 * math.min(left_1, period_1) <= (limits.ceiling_1 - current_1 - cost_1) * period_1
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
        fits_1 = share < limits.ceiling_1 - current_1 - cost_1 or share == limits.ceiling_1 - current_1 - cost_1 and part == 0
      end
      local admitted = fits_1
      if admitted then
        granted = granted + 1
        if cost_1 > 0 then
          current_1 = current_1 + cost_1
        end
        if cost_1 == 0 then
          granted = count
        end
      end
    until not admitted or granted == count
    if cost_1 > 0 and use_1 < 2 then use_1 = granted > 0 and 2 or 1 end
    if run == runs then
      if use_1 == 2 then
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
      if use_1 == 1 then
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
    replies[place + 1] = granted
    replies[place + 2] = first_1
    replies[place + 3] = second_1
    replies[place + 4] = third_1
    place = place + 4
    if run < runs then
      cost_1, limits.ceiling_1, count, next_byte = unpack('<ddd', packed, next_byte)
    end
  end
end
place = place + 1
replies[place] = now
local parts = {}
for first = 1, place, 4000 do
  local last = math.min(first + 3999, place)
  parts[#parts + 1] = pack(string.rep('<d', last - first + 1), all(replies, first, last))
end
return table.concat(parts)
