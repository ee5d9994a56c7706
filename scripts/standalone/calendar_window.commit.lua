-- tollgate, assembled for: CalendarWindow
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local now, number, cost_1, amount_1, before_1, begin_1, close_1, after_1 = unpack('<dddddddd', ARGV[1])
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
local count_1, mended_1, kept_1 = 0, false, nil
local start_1, end_1, next_1 = begin_1, close_1, after_1
if now < begin_1 then
  start_1, end_1, next_1 = before_1, begin_1, close_1
elseif now >= close_1 then
  start_1, end_1, next_1 = close_1, after_1, after_1 + after_1 - close_1
end
if now < start_1 or now >= end_1 then
  local length = end_1 - start_1
  start_1 = now - (now - start_1) % length
  end_1, next_1 = start_1 + length, start_1 + length + length
end
local state_1 = states[2]
if state_1 and #state_1 == 24 then
  local start, count, stop = unpack('<ddd', state_1)
  if start >= start_1 and count > 0 and count <= 9007199254740992 then
    count_1 = count
    if start > end_1 then
      mended_1 = true
    elseif start == end_1 then
      start_1, end_1 = end_1, next_1
    end
    if start == start_1 and stop == end_1 then
      kept_1 = true
    end
  end
end
if more_1 then
  cost_1 = math.min(cost_1, amount_1 * 8 - count_1)
  if cost_1 > 0 then
    count_1 = count_1 + cost_1
  end
  if cost_1 > 0 then
    if kept_1 then
      call('SETRANGE', key_1, '8', pack('<d', count_1))
    else
      call('SET', key_1, pack('<ddd', start_1, count_1, end_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
    end
  end
end
if cost_1 > 0 and not more_1 then
  if spent >= start_1 then
    count_1 = count_1 - cost_1
  end
  if count_1 > 0 then
    if kept_1 then
      call('SETRANGE', key_1, '8', pack('<d', count_1))
    else
      call('SET', key_1, pack('<ddd', start_1, count_1, end_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
    end
  else
    call('DEL', key_1)
  end
end
call('SETRANGE', KEYS[1], '8', pack('<d', number))
return 1
