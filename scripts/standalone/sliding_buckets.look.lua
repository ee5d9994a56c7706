-- tollgate, assembled for: SlidingBuckets
local call, pcall = redis.call, redis.pcall
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, amount_1, width_1, buckets_1
if #packed == 40 then
  now, cost_1, amount_1, width_1, buckets_1 = unpack('<ddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  amount_1 = ARGV[3] + 0
  width_1 = ARGV[4] + 0
  buckets_1 = ARGV[5] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
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
local fits_1 = cost_1 == 0 or used_1 + cost_1 <= amount_1
local first_1, second_1, third_1, fourth_1 = used_1, 0, 0, 0
if used_1 > 0 then
  third_1 = (newest_1 + buckets_1 + 1) * width_1 - now
  local some, all, left, from = math.max(used_1 + 1 - amount_1, 1), 0, 0, from_1
  if not fits_1 then
    all = used_1 + cost_1 - amount_1
  end
  while (left < some or left < all) and from < #state_1 do
    local at, count = unpack('<I2I4', state_1, from)
    local leaves = (newest_1 - (newest_1 - at) % 65536 + buckets_1 + 1) * width_1 - now
    if left < some then
      fourth_1 = leaves
    end
    if left < all then
      second_1 = leaves
    end
    left, from = left + count, from + 6
  end
end
if not fits_1 then first_1 = -1 - first_1 end
return { first_1, second_1, third_1, fourth_1, now }
