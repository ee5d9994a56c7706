-- tollgate, assembled for: SlidingBuckets
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, amount_1, width_1, buckets_1, length_1, most_1
if #packed == 56 then
  now, cost_1, amount_1, width_1, buckets_1, length_1, most_1 = unpack('<ddddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  amount_1 = ARGV[3] + 0
  width_1 = ARGV[4] + 0
  buckets_1 = ARGV[5] + 0
  length_1 = ARGV[6] + 0
  most_1 = ARGV[7] + 0
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key_1 = KEYS[1]
local account_1 = KEYS[2]
local told_1 = false
local book_1 = { 0, length_1, (now - now % length_1) / length_1, 0, 0 }
local stored_1, until_1 = states[1], nil
local leased_1 = states[2]
if leased_1 and #leased_1 == 40 then
  local birth, length, generation, new, old = unpack('<ddddd', leased_1)
  local present = (now - now % length) / length
  if generation > present + 1 then
    birth, generation, told_1 = 0, present + 1, true
  end
  while generation < present and new + old > 0 do
    if old > 0 then
      local alive, now, cost_1 = now, (generation + 1) * length, old
      local function call(_, _, value, _, time)
        stored_1, until_1 = value, time + 0
      end
      local now_at_1 = (now - now % width_1) / width_1
      local used_1, newest_1, from_1, mended_1 = 0, now_at_1, 25, false
      local state_1 = stored_1
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
      local kept_1
      cost_1 = math.min(cost_1, math.min(amount_1 * 8, 4294967295) - used_1)
      if cost_1 > 0 then
        local to_1, sum_1 = #state_1, cost_1
        if used_1 > 0 and newest_1 >= now_at_1 then
          sum_1, to_1 = cost_1 + unpack('<I4', state_1, to_1 - 3), to_1 - 6
        else
          newest_1 = now_at_1
        end
        used_1 = used_1 + cost_1
        state_1 = pack('<dddc0I2I4', width_1, newest_1, used_1, state_1:sub(from_1, to_1), newest_1 % 65536, sum_1)
        from_1 = 25
      end
      if cost_1 > 0 then
        local end_1 = (newest_1 + buckets_1 + 1) * width_1
        call('SET', key_1, state_1, 'PXAT', format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
      end
    end
    generation, new, old, told_1 = generation + 1, 0, new, true
  end
  if new + old > 0 then
    book_1 = { birth, length, generation, new, old }
  end
end
if until_1 then
  call('SET', key_1, stored_1, 'PXAT', format('%d', math.max(until_1, (now - now % 1000) / 1000 + 1)))
end
local now_at_1 = (now - now % width_1) / width_1
local used_1, newest_1, from_1, mended_1 = 0, now_at_1, 25, false
local state_1 = stored_1
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
if told_1 then
  local last = (book_1[3] + 2) * book_1[2]
  if book_1[4] + book_1[5] > 0 then
    local ends = last + (buckets_1 + 2) * width_1
    local ends = ends - ends % 1000
    call('SET', account_1, pack('<ddddd', book_1[1], book_1[2], book_1[3], book_1[4], book_1[5]), 'PXAT', format('%d', ends / 1000 + 1))
  else
    call('DEL', account_1)
  end
end
local leaves_1 = true
if cost_1 > 0 and book_1[4] + book_1[5] > 0 then
  local used_1, newest_1, from_1, state_1 = used_1, newest_1, from_1, state_1
  do
    local cost_1 = book_1[4] + book_1[5]
    cost_1 = math.min(cost_1, math.min(amount_1 * 8, 4294967295) - used_1)
    if cost_1 > 0 then
      local to_1, sum_1 = #state_1, cost_1
      if used_1 > 0 and newest_1 >= now_at_1 then
        sum_1, to_1 = cost_1 + unpack('<I4', state_1, to_1 - 3), to_1 - 6
      else
        newest_1 = now_at_1
      end
      used_1 = used_1 + cost_1
      state_1 = pack('<dddc0I2I4', width_1, newest_1, used_1, state_1:sub(from_1, to_1), newest_1 % 65536, sum_1)
      from_1 = 25
    end
  end
  local fits_1 = cost_1 == 0 or used_1 + cost_1 <= amount_1
  leaves_1 = fits_1
end
local fits_1 = cost_1 == 0 or used_1 + cost_1 <= amount_1
fits_1 = fits_1 and leaves_1
local first_1, second_1, third_1, fourth_1 = 0, 0, 0, 0
do
  local used_1, newest_1, from_1, state_1 = used_1, newest_1, from_1, state_1
  do
    local cost_1 = book_1[4] + book_1[5]
    cost_1 = math.min(cost_1, math.min(amount_1 * 8, 4294967295) - used_1)
    if cost_1 > 0 then
      local to_1, sum_1 = #state_1, cost_1
      if used_1 > 0 and newest_1 >= now_at_1 then
        sum_1, to_1 = cost_1 + unpack('<I4', state_1, to_1 - 3), to_1 - 6
      else
        newest_1 = now_at_1
      end
      used_1 = used_1 + cost_1
      state_1 = pack('<dddc0I2I4', width_1, newest_1, used_1, state_1:sub(from_1, to_1), newest_1 % 65536, sum_1)
      from_1 = 25
    end
  end
  first_1, second_1, third_1, fourth_1 = used_1, 0, 0, 0
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
end
if not fits_1 and book_1[4] + book_1[5] > 0 and cost_1 + book_1[4] + book_1[5] > amount_1 then
  second_1 = math.max(second_1, (book_1[3] + (book_1[4] > 0 and 2 or 1)) * book_1[2] - now)
end
if not fits_1 then first_1 = -1 - first_1 end
return { first_1, second_1, third_1, fourth_1, now }
