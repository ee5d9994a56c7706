-- tollgate, assembled for: FixedWindow
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
local count_1, start_1, mended_1, kept_1 = 0, now - now % period_1, false, nil
local state_1 = pcall('GET', key_1)
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
if cost_1 > 0 then
  if spent >= start_1 then
    count_1 = count_1 - cost_1
  end
  if count_1 > 0 then
    if kept_1 then
      call('SETRANGE', key_1, '8', pack('<d', count_1))
    else
      local end_1 = start_1 + period_1
      call('SET', key_1, pack('<ddd', start_1, count_1, period_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
    end
  else
    call('DEL', key_1)
  end
end
return 1
