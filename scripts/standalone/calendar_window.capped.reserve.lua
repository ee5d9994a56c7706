-- tollgate, assembled for: CalendarWindow
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local now, life, cost_1, amount_1, before_1, begin_1, close_1, after_1
local limits = {}
now, life, cost_1, limits.ceiling_1, amount_1, before_1, begin_1, close_1, after_1 = unpack('<ddddddddd', ARGV[1])
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local size = 64
local status, record = 1, states[1]
if record and #record == size and now < unpack('<d', record) then
  return { 2, record }
end
local key_1 = KEYS[2]
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
local fits_1 = cost_1 == 0 or count_1 + cost_1 <= limits.ceiling_1
local admitted = fits_1
if admitted then
  if cost_1 > 0 then
    count_1 = count_1 + cost_1
    if kept_1 then
      call('SETRANGE', key_1, '8', pack('<d', count_1))
    else
      call('SET', key_1, pack('<ddd', start_1, count_1, end_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
    end
  end
else
  status = 0
  if cost_1 > 0 then
    if mended_1 then
      if kept_1 then
        call('SETRANGE', key_1, '8', pack('<d', count_1))
      else
        call('SET', key_1, pack('<ddd', start_1, count_1, end_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
      end
    end
  end
end
local first_1, second_1 = count_1, end_1 - now
local lapse = now + life
if not fits_1 then first_1 = -1 - first_1 end
record = {
  pack('<ddd', lapse, 0, now),
  pack('<ddddd', cost_1, first_1, second_1, 0, 0),
}
record = table.concat(record)
if status == 1 then
  call('SET', KEYS[1], record, 'PXAT', format('%d', (lapse - lapse % 1000) / 1000 + 1))
end
return { status, record }
