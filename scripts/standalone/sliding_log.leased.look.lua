-- tollgate, assembled for: SlidingLog
local call, pcall = redis.call, redis.pcall
local states = call('MGET', unpack(KEYS))
local spread = unpack
-- When the entry at a place was spent, no later than `latest`; what is no entry has left.
local function time_at(key, at, latest)
  local entry = redis.call('LINDEX', key, at)
  local time = entry and #entry >= 8 and struct.unpack('<d', entry) or 0
  if time > latest then
    return latest
  end
  return time >= 0 and time or 0
end
-- The number of entries. A key of another type has none. It is deleted before anything is written: where its slot is
-- being moved, the next call is refused, and the other server decides.
local function size_of(key)
  local size = redis.pcall('LLEN', key)
  if type(size) ~= 'number' then
    redis.call('DEL', key)
    size = redis.call('LLEN', key)
  end
  return size
end
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, cost_1, amount_1, period_1, length_1, most_1
local tag
if #packed == 48 then
  now, cost_1, amount_1, period_1, length_1, most_1 = unpack('<dddddd', packed)
  tag = ARGV[2]
else
  now = ARGV[1] == '' and -1 or ARGV[1] + 0
  cost_1 = ARGV[2] + 0
  amount_1 = ARGV[4] + 0
  period_1 = ARGV[5] + 0
  length_1 = ARGV[6] + 0
  most_1 = ARGV[7] + 0
  tag = ARGV[3]
end
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key_1 = KEYS[1]
local account_1 = KEYS[2]
local told_1 = false
local book_1 = { 0, length_1, (now - now % length_1) / length_1, 0, 0 }
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
      local tag, send = '', call
      local function call(name, key, ...)
        if name == 'PEXPIREAT' then
          return send(name, key, format('%d', math.max((...) + 0, (alive - alive % 1000) / 1000 + 1)))
        end
        return send(name, key, ...)
      end
      local used_1, newest_1, oldest_1, mended_1 = 0, 0, 0, false
      local size_1 = size_of(key_1)
      if size_1 == 0 then
        newest_1 = now
      else
        newest_1 = time_at(key_1, '0', now + period_1 + 1)
        if newest_1 > now + period_1 then
          newest_1, mended_1 = now, true
        end
        local edge, inside, gone, step = now - period_1, -1, size_1, 1
        if newest_1 > edge then
          local at = size_1 - 1
          while at >= 0 do
            local time = time_at(key_1, format('%d', at), newest_1)
            if time > edge then
              inside, oldest_1 = at, time
              break
            end
            gone, at, step = at, at - step, step * 2
          end
          while gone - inside > 1 do
            local at = math.floor((gone + inside) / 2)
            local time = time_at(key_1, format('%d', at), newest_1)
            if time > edge then
              inside, oldest_1 = at, time
            else
              gone = at
            end
          end
          used_1 = gone
        end
        mended_1 = mended_1 and used_1 > 0
      end
      local add_1 = 0
      local kept_1
      cost_1 = math.min(cost_1, math.min(amount_1 * 8, amount_1 + 100000) - used_1)
      if cost_1 > 0 then
        add_1 = add_1 + cost_1
        if used_1 == 0 then
          newest_1, oldest_1 = now, now
        elseif newest_1 < now then
          newest_1 = now
        end
      end
      if cost_1 > 0 then
        if mended_1 then
          local list = call('LRANGE', key_1, '0', format('%d', used_1 - 1))
          for at, entry in ipairs(list) do
            if #entry >= 8 and unpack('<d', entry) > now then
              list[at] = pack('<dc0', now, entry:sub(9))
            end
          end
          for at = 1, used_1, 1000 do
            call('RPUSH', key_1, spread(list, at, math.min(at + 999, used_1)))
          end
          call('LTRIM', key_1, format('%d', -used_1), '-1')
        end
        if add_1 == 1 then
          call('LPUSH', key_1, pack('<dc0', newest_1, tag))
        elseif add_1 > 0 then
          local entry, many = pack('<dc0', newest_1, tag), {}
          for at = 1, math.min(add_1, 1000) do
            many[at] = entry
          end
          for left = add_1, 1, -1000 do
            call('LPUSH', key_1, spread(many, 1, math.min(left, 1000)))
          end
        end
        if used_1 ~= size_1 and not mended_1 then
          call('LTRIM', key_1, '0', format('%d', used_1 + add_1 - 1))
        end
        local end_1 = newest_1 + period_1
        call('PEXPIREAT', key_1, format('%d', (end_1 - end_1 % 1000) / 1000 + 1))
      end
    end
    generation, new, old, told_1 = generation + 1, 0, new, true
  end
  if new + old > 0 then
    book_1 = { birth, length, generation, new, old }
  end
end
local used_1, newest_1, oldest_1, mended_1 = 0, 0, 0, false
local size_1 = size_of(key_1)
if size_1 == 0 then
  newest_1 = now
else
  newest_1 = time_at(key_1, '0', now + period_1 + 1)
  if newest_1 > now + period_1 then
    newest_1, mended_1 = now, true
  end
  local edge, inside, gone, step = now - period_1, -1, size_1, 1
  if newest_1 > edge then
    local at = size_1 - 1
    while at >= 0 do
      local time = time_at(key_1, format('%d', at), newest_1)
      if time > edge then
        inside, oldest_1 = at, time
        break
      end
      gone, at, step = at, at - step, step * 2
    end
    while gone - inside > 1 do
      local at = math.floor((gone + inside) / 2)
      local time = time_at(key_1, format('%d', at), newest_1)
      if time > edge then
        inside, oldest_1 = at, time
      else
        gone = at
      end
    end
    used_1 = gone
  end
  mended_1 = mended_1 and used_1 > 0
end
local add_1 = 0
if told_1 then
  local last = (book_1[3] + 2) * book_1[2]
  if book_1[4] + book_1[5] > 0 then
    local ends = last + period_1
    local ends = ends - ends % 1000
    call('SET', account_1, pack('<ddddd', book_1[1], book_1[2], book_1[3], book_1[4], book_1[5]), 'PXAT', format('%d', ends / 1000 + 1))
  else
    call('DEL', account_1)
  end
end
local leaves_1 = true
if cost_1 > 0 and book_1[4] + book_1[5] > 0 then
  local held_1 = math.min(amount_1 * 8, amount_1 + 100000) - used_1 - add_1
  held_1 = math.max(math.min(held_1, book_1[4] + book_1[5]), 0)
  local amount_1 = amount_1 - held_1
  local fits_1 = cost_1 == 0 or used_1 + add_1 + cost_1 <= amount_1
  leaves_1 = fits_1
end
local fits_1 = cost_1 == 0 or used_1 + add_1 + cost_1 <= amount_1
fits_1 = fits_1 and leaves_1
local first_1, second_1, third_1, fourth_1 = 0, 0, 0, 0
do
  local held_1 = math.min(amount_1 * 8, amount_1 + 100000) - used_1 - add_1
  held_1 = math.max(math.min(held_1, book_1[4] + book_1[5]), 0)
  local amount_1 = amount_1 - held_1
  first_1, second_1, third_1, fourth_1 = used_1 + add_1, 0, 0, 0
  if first_1 > 0 then
    third_1, fourth_1 = newest_1 + period_1 - now, oldest_1
    if first_1 > amount_1 then
      fourth_1 = math.max(time_at(key_1, format('%d', amount_1 - 1), newest_1), oldest_1)
    end
    if not fits_1 then
      second_1 = oldest_1
      if amount_1 - cost_1 ~= first_1 - 1 then
        second_1 = math.max(time_at(key_1, format('%d', amount_1 - cost_1), newest_1), oldest_1)
      end
      second_1 = second_1 + period_1 - now
    end
    fourth_1 = fourth_1 + period_1 - now
  end
  if held_1 > 0 then
    third_1 = math.max(third_1, period_1)
    if not fits_1 and cost_1 > amount_1 then
      second_1 = third_1
    end
    if first_1 == 0 or amount_1 <= 0 then
      fourth_1 = third_1
    end
    first_1 = first_1 + held_1
  end
end
if not fits_1 and book_1[4] + book_1[5] > 0 and cost_1 + book_1[4] + book_1[5] > amount_1 then
  second_1 = math.max(second_1, (book_1[3] + (book_1[4] > 0 and 2 or 1)) * book_1[2] - now)
end
if not fits_1 then first_1 = -1 - first_1 end
return { first_1, second_1, third_1, fourth_1, now }
