-- tollgate, assembled for: IntervalBucket
local call, pcall = redis.call, redis.pcall
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, spent, amount_1, period_1, burst_1
if #packed == 48 then
  now, cost_1, spent, amount_1, period_1, burst_1 = unpack('<dddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  spent = ARGV[3] == '' and -1 or ARGV[3] + 0
  amount_1 = ARGV[4] + 0
  period_1 = ARGV[5] + 0
  burst_1 = ARGV[6] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if spent < 0 then
  spent = now + 1 + spent
end
local key_1 = KEYS[1]
local used_1, start_1, mended_1 = 0, now, false
local state_1 = pcall('GET', key_1)
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
if cost_1 > 0 then
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
return 1
