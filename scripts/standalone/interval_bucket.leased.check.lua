-- tollgate, assembled for: IntervalBucket
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, amount_1, period_1, burst_1, length_1, most_1
if #packed == 56 then
  now, cost_1, amount_1, period_1, burst_1, length_1, most_1 = unpack('<ddddddd', packed)
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  amount_1 = ARGV[3] + 0
  period_1 = ARGV[4] + 0
  burst_1 = ARGV[5] + 0
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
      local used_1, start_1, mended_1 = 0, now, false
      local state_1 = stored_1
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
      local kept_1
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
    generation, new, old, told_1 = generation + 1, 0, new, true
  end
  if new + old > 0 then
    book_1 = { birth, length, generation, new, old }
  end
end
if until_1 then
  call('SET', key_1, stored_1, 'PXAT', format('%d', math.max(until_1, (now - now % 1000) / 1000 + 1)))
end
local used_1, start_1, mended_1 = 0, now, false
local state_1 = stored_1
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
if told_1 then
  local last = (book_1[3] + 2) * book_1[2]
  if book_1[4] + book_1[5] > 0 then
    local ends = math.max(last, start_1 + math.ceil(used_1 / amount_1) * period_1) + math.ceil(burst_1 / amount_1) * period_1
    local ends = ends - ends % 1000
    call('SET', account_1, pack('<ddddd', book_1[1], book_1[2], book_1[3], book_1[4], book_1[5]), 'PXAT', format('%d', ends / 1000 + 1))
  else
    call('DEL', account_1)
  end
end
local leaves_1 = true
if cost_1 > 0 and book_1[4] + book_1[5] > 0 then
  local used_1 = used_1
  do
    local cost_1 = book_1[4] + book_1[5]
    cost_1 = math.min(cost_1, burst_1 * 8 - used_1)
    used_1 = used_1 + cost_1
  end
  local fits_1 = used_1 + cost_1 <= burst_1 or cost_1 == 0
  leaves_1 = fits_1
end
local fits_1 = used_1 + cost_1 <= burst_1 or cost_1 == 0
fits_1 = fits_1 and leaves_1
local admitted = fits_1
if admitted then
  if cost_1 > 0 then
    used_1 = used_1 + cost_1
    local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
    call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))
  end
else
  if cost_1 > 0 then
    if mended_1 then
      if used_1 > burst_1 then
        local full = start_1 + math.ceil(used_1 / amount_1) * period_1
        call('SET', key_1, pack('<dd', start_1, used_1 + 1000000000000000), 'PXAT', format('%d', (full - full % 1000) / 1000 + 1))
      else
        local full_1 = start_1 + math.ceil(used_1 / amount_1) * period_1
        call('SET', key_1, pack('<dd', start_1, used_1), 'PXAT', format('%d', (full_1 - full_1 % 1000) / 1000 + 1))
      end
    end
  end
end
local first_1, second_1, third_1, fourth_1 = 0, 0, 0, 0
do
  local used_1 = used_1
  do
    local cost_1 = book_1[4] + book_1[5]
    cost_1 = math.min(cost_1, burst_1 * 8 - used_1)
    used_1 = used_1 + cost_1
  end
  first_1, second_1 = used_1, start_1 + period_1 - now
end
if not fits_1 and book_1[4] + book_1[5] > 0 and cost_1 + book_1[4] + book_1[5] > burst_1 then
  fourth_1 = math.max(fourth_1, (book_1[3] + (book_1[4] > 0 and 2 or 1)) * book_1[2] - now)
end
if not fits_1 then first_1 = -1 - first_1 end
return { first_1, second_1, third_1, fourth_1, now }
