-- tollgate, assembled for: SlidingBuckets
local call, pcall = redis.call, redis.pcall
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, spent, amount_1, width_1, buckets_1
if #packed == 48 then
  now, cost_1, spent, amount_1, width_1, buckets_1 = unpack('<dddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  spent = ARGV[3] == '' and -1 or ARGV[3] + 0
  amount_1 = ARGV[4] + 0
  width_1 = ARGV[5] + 0
  buckets_1 = ARGV[6] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if spent < 0 then
  spent = now + 1 + spent
end
local key_1 = KEYS[1]
local now_at_1 = (now - now % width_1) / width_1
local used_1, newest_1, from_1, mended_1 = 0, now_at_1, 25, false
local state_1 = pcall('GET', key_1)
local size_1 = state_1 and #state_1 or 0
if size_1 >= 30 and size_1 % 6 == 0 then
  local width, newest, total = unpack('<ddd', state_1)
  if width == width_1 and newest <= now_at_1 + buckets_1 then
    if total <= 4294967295 then
      local first = math.max(newest, now_at_1) - buckets_1
      used_1, newest_1 = total, newest
      repeat
        local at, count = unpack('<I2I4', state_1, from_1)
        local stays = newest - (newest - at) % 65536 >= first
        if not stays then
          used_1, from_1 = used_1 - count, from_1 + 6
        end
      until stays or from_1 > size_1
    end
  elseif width > 0 then
    local list, last, sum = '', 0, 0
    for from = 25, size_1, 6 do
      local at, count = unpack('<I2I4', state_1, from)
      at = math.min((newest - (newest - at) % 65536 + 1) * width - 1, now)
      at = (at - at % width_1) / width_1
      if at >= now_at_1 - buckets_1 then
        if at ~= last and sum > 0 then
          list, sum = pack('<c0I2I4', list, last % 65536, sum), 0
        end
        used_1, last, sum = used_1 + count, at, sum + count
      end
    end
    if used_1 > 0 then
      newest_1, mended_1 = last, true
      state_1 = pack('<dddc0I2I4', width_1, last, used_1, list, last % 65536, sum)
    end
  end
end
if not (used_1 > 0) or from_1 > size_1 then
  used_1, newest_1, from_1, state_1 = 0, now_at_1, 25, ''
end
if cost_1 > 0 then
  if used_1 > 0 then
    local at_spent, exact = (spent - spent % width_1) / width_1, 0
    for from = from_1, #state_1, 6 do
      local at, count = unpack('<I2I4', state_1, from)
      if newest_1 - (newest_1 - at) % 65536 == at_spent then
        exact = math.min(count, cost_1)
      end
    end
    local older, list, last = cost_1 - exact, '', 0
    used_1 = 0
    for from = from_1, #state_1, 6 do
      local at, count = unpack('<I2I4', state_1, from)
      at = newest_1 - (newest_1 - at) % 65536
      local back = 0
      if at == at_spent then
        back = exact
      elseif at < at_spent then
        back = math.min(count, older)
        older = older - back
      end
      if count > back then
        list, last, used_1 = pack('<c0I2I4', list, at % 65536, count - back), at, used_1 + count - back
      end
    end
    newest_1 = last
    state_1 = pack('<dddc0', width_1, last, used_1, list)
  end
  if used_1 > 0 then
    local end_1 = (newest_1 + buckets_1 + 1) * width_1
    call('SET', key_1, state_1, 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
  else
    call('DEL', key_1)
  end
end
return 1
