-- tollgate, assembled for: FixedWindow
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
  local count_1, start_1, mended_1, kept_1 = 0, now - now % period_1, false, nil
  local state_1 = states[at + 1]
  if state_1 and #state_1 == 24 then
    local start, count, period = unpack('<ddd', state_1)
    if start >= start_1 and count > 0 and count <= 9007199254740992 then
      count_1 = count
      if start > now + period_1 then
        mended_1 = true
      elseif start > now then
        start_1 = start - start % period_1
      end
      if start == start_1 and period == period_1 then
        kept_1 = true
      end
    end
  end
  local use_1 = 0
  for run = 1, runs do
    local granted = 0
    local fits_1
    repeat
      fits_1 = cost_1 == 0 or count_1 + cost_1 <= limits.ceiling_1
      local admitted = fits_1
      if admitted then
        granted = granted + 1
        if cost_1 > 0 then
          count_1 = count_1 + cost_1
        end
        if cost_1 == 0 then
          granted = count
        end
      end
    until not admitted or granted == count
    if cost_1 > 0 and use_1 < 2 then use_1 = granted > 0 and 2 or 1 end
    if run == runs then
      if use_1 == 2 then
        if kept_1 then
          call('SETRANGE', key_1, '8', pack('<d', count_1))
        else
          local end_1 = start_1 + period_1
          call('SET', key_1, pack('<ddd', start_1, count_1, period_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
        end
      end
      if use_1 == 1 then
        if mended_1 then
          if kept_1 then
            call('SETRANGE', key_1, '8', pack('<d', count_1))
          else
            local end_1 = start_1 + period_1
            call('SET', key_1, pack('<ddd', start_1, count_1, period_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
          end
        end
      end
    end
    local first_1, second_1 = count_1, start_1 + period_1 - now
    if not fits_1 then first_1 = -1 - first_1 end
    replies[place + 1] = granted
    replies[place + 2] = first_1
    replies[place + 3] = second_1
    place = place + 3
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
