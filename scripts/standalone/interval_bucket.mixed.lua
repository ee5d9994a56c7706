-- tollgate, assembled for: IntervalBucket
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
  local amount_1, period_1, burst_1, runs, cost_1, count
  amount_1, period_1, burst_1, runs, cost_1, count, next_byte = unpack('<dddddd', packed, next_byte)
  local used_1, start_1, mended_1 = 0, now, false
  local state_1 = states[at + 1]
  if state_1 and #state_1 == 16 then
    local start, used = unpack('<dd', state_1)
    if start >= 0 and used > 0 and used <= 9007199254740992 then
      if used > burst_1 then
        local most = burst_1
        local is_owed = used >= 1000000000000000
        if used >= 1000000000000000 then
          used = used - 1000000000000000
        end
        if is_owed then
          most = burst_1 * 8
        end
        if used > most then
          used, mended_1 = most, true
        end
      end
      if start > now then
        start, mended_1 = now, true
      end
      local passed = now - start
      passed = passed - passed % period_1
      used = used - passed / period_1 * amount_1
      if used > 0 then
        used_1, start_1 = used, start + passed
      else
        mended_1 = false
      end
    end
  end
  local use_1 = 0
  for run = 1, runs do
    local granted = 0
    local fits_1
    repeat
      fits_1 = used_1 + cost_1 <= burst_1 or cost_1 == 0
      local admitted = fits_1
      if admitted then
        granted = granted + 1
        if cost_1 > 0 then
          used_1 = used_1 + cost_1
        end
        if cost_1 == 0 then
          granted = count
        end
      end
    until not admitted or granted == count
    if cost_1 > 0 and use_1 < 2 then use_1 = granted > 0 and 2 or 1 end
    if run == runs then
      if use_1 == 2 then
        local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
        call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))
      end
      if use_1 == 1 then
        if mended_1 then
          if used_1 > burst_1 then
            local full = start_1 + math.ceil(used_1 / amount_1) * period_1
            call('SET', key_1, pack('<dd', start_1, used_1 + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
          else
            local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
            call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))
          end
        end
      end
    end
    local first_1, second_1 = used_1, start_1 + period_1 - now
    if not fits_1 then first_1 = -1 - first_1 end
    replies[place + 1] = granted
    replies[place + 2] = first_1
    replies[place + 3] = second_1
    place = place + 3
    if run < runs then
      cost_1, count, next_byte = unpack('<dd', packed, next_byte)
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
