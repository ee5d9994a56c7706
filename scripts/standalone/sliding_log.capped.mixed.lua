-- tollgate, assembled for: SlidingLog
local call, pcall, all = redis.call, redis.pcall, unpack
local states = call('MGET', all(KEYS))
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
for at = 1, #KEYS, 1 do
  states[at] = size_of(KEYS[at])
end
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, next_byte = unpack('<d', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local each = 1
local replies, place = {}, 0
for at = 0, #KEYS - each, each do
  local key_1 = KEYS[at + 1]
  local tag = ARGV[at / each + 2]
  local amount_1, period_1, runs, cost_1, count
  local limits = {}
  amount_1, period_1, runs, cost_1, limits.ceiling_1, count, next_byte = unpack('<dddddd', packed, next_byte)
  local used_1, newest_1, oldest_1, mended_1 = 0, 0, 0, false
  local size_1 = states[at + 1]
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
  local use_1 = 0
  for run = 1, runs do
    local granted = 0
    local fits_1
    repeat
      fits_1 = cost_1 == 0 or used_1 + add_1 + cost_1 <= limits.ceiling_1
      local admitted = fits_1
      if admitted then
        granted = granted + 1
        if cost_1 > 0 then
          add_1 = add_1 + cost_1
          if used_1 == 0 then
            newest_1, oldest_1 = now, now
          elseif newest_1 < now then
            newest_1 = now
          end
        end
        if cost_1 == 0 then
          granted = count
        end
      end
    until not admitted or granted == count
    if cost_1 > 0 and use_1 < 2 then use_1 = granted > 0 and 2 or 1 end
    if run == runs then
      if use_1 == 2 then
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
      if use_1 == 1 then
        if mended_1 then
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
    end
    local first_1, second_1, third_1, fourth_1 = used_1 + add_1, 0, 0, 0
    if first_1 > 0 then
      third_1, fourth_1 = newest_1 + period_1 - now, oldest_1
      if first_1 > amount_1 then
        fourth_1 = math.max(time_at(key_1, format('%d', amount_1 - 1), newest_1), oldest_1)
      end
      if not fits_1 then
        second_1 = oldest_1
        if limits.ceiling_1 - cost_1 ~= first_1 - 1 then
          second_1 = math.max(time_at(key_1, format('%d', limits.ceiling_1 - cost_1), newest_1), oldest_1)
        end
        second_1 = second_1 + period_1 - now
      end
      fourth_1 = fourth_1 + period_1 - now
    end
    if not fits_1 then first_1 = -1 - first_1 end
    replies[place + 1] = granted
    replies[place + 2] = first_1
    replies[place + 3] = second_1
    replies[place + 4] = third_1
    replies[place + 5] = fourth_1
    place = place + 5
    if run < runs then
      cost_1, limits.ceiling_1, count, next_byte = unpack('<ddd', packed, next_byte)
    end
  end
end
place = place + 1
replies[place] = now
local parts = {}
for first = 1, place, 4000 do
  local last = math.min(first + 3999, place)
  parts[#parts + 1] = pack(string.rep('<d', last - first + 1), all(replies, first, last))
end
return table.concat(parts)
