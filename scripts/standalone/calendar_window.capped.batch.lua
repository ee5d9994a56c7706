-- tollgate, assembled for: CalendarWindow
local call, pcall, all = redis.call, redis.pcall, unpack
local states = call('MGET', all(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, amount_1, before_1, begin_1, close_1, after_1
local limits = {}
local next_arg = 2
if #packed == 64 then
  now, cost_1, limits.ceiling_1, amount_1, before_1, begin_1, close_1, after_1 = unpack('<dddddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  limits.ceiling_1 = ARGV[3] + 0
  amount_1 = ARGV[4] + 0
  before_1 = ARGV[5] + 0
  begin_1 = ARGV[6] + 0
  close_1 = ARGV[7] + 0
  after_1 = ARGV[8] + 0
  next_arg = 9
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local each, counted = 1, ARGV[next_arg]
local replies, place = {}, 0
for at = 0, #KEYS - each, each do
  local key_1 = KEYS[at + 1]
  local count = 1
  if counted then
    count = ARGV[next_arg + at / each] + 0
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
  local state_1 = states[at + 1]
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
  if granted > 0 then
    if cost_1 > 0 then
      if kept_1 then
        call('SETRANGE', key_1, '8', pack('<d', count_1))
      else
        call('SET', key_1, pack('<ddd', start_1, count_1, end_1), 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
      end
    end
  else
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
  if not fits_1 then first_1 = -1 - first_1 end
  if counted then
    place = place + 1
    replies[place] = granted
  end
  place = place + 1
  replies[place] = first_1
  place = place + 1
  replies[place] = second_1
end
place = place + 1
replies[place] = now
return pack(string.rep('<d', place), all(replies))
