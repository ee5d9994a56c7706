-- tollgate, assembled for: IntervalBucket
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local now, number, cost_1, amount_1, period_1, burst_1 = unpack('<dddddd', ARGV[1])
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local size = 64
local record = states[1]
if not record or #record ~= size then
  return 0
end
local lapse, settled, spent = unpack('<ddd', record)
if not (now < lapse) then
  return 0
elseif settled ~= 0 then
  return settled == number and 1 or 2
end
local key_1 = KEYS[2]
local more_1 = false
do
  local held, first, second = unpack('<ddd', record, 25)
  more_1, cost_1 = cost_1 > held, math.min(math.abs(held - cost_1), 9007199254740991)
end
local used_1, start_1, mended_1 = 0, now, false
local state_1 = states[2]
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
if more_1 then
  cost_1 = math.min(cost_1, burst_1 * 8 - used_1)
  used_1 = used_1 + cost_1
  if used_1 > burst_1 then
    local full = start_1 + math.ceil(used_1 / amount_1) * period_1
    call('SET', key_1, pack('<dd', start_1, used_1 + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
  else
    local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
    call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))
  end
end
if cost_1 > 0 and not more_1 then
  if spent >= start_1 then
    used_1 = used_1 - cost_1
  end
  if used_1 > 0 then
    if used_1 > burst_1 then
      local full = start_1 + math.ceil(used_1 / amount_1) * period_1
      call('SET', key_1, pack('<dd', start_1, used_1 + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
    else
      local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
      call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))
    end
  else
    call('DEL', key_1)
  end
end
call('SETRANGE', KEYS[1], '8', pack('<d', number))
return 1
