-- tollgate, assembled for: TokenBucket
local call, pcall, all = redis.call, redis.pcall, unpack
local states = call('MGET', all(KEYS))
local pack, unpack, format = struct.pack, struct.unpack, string.format
local packed = ARGV[1]
local now, birth, next_byte = unpack('<dd', packed)
if now < 0 then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local each = 2
local replies, place = {}, 0
for at = 0, #KEYS - each, each do
  local key_1 = KEYS[at + 1]
  local account_1 = KEYS[at + 2]
  local amount_1, period_1, burst_1, length_1, most_1
  amount_1, period_1, burst_1, length_1, most_1, next_byte = unpack('<ddddd', packed, next_byte)
  local pace_1 = period_1 / amount_1
  local rest_1 = period_1 % amount_1
  local unit_1 = (period_1 - rest_1) / amount_1
  local top_1, top_part_1 = unit_1 * burst_1, 0
  if rest_1 > 0 then
    local parts = rest_1 * burst_1
    if parts < 9007199254740992 then
      top_part_1 = parts % amount_1
      top_1 = top_1 + (parts - top_part_1) / amount_1
    else
      local function muldiv(a, b, c)
        local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
        while power * base <= b do
          power = power * base
        end
        repeat
          local digit = math.floor(b / power)
          local sum = rest * base + a * digit
          rest = sum % c
          whole = whole * base + (sum - rest) / c
          b, power = b - digit * power, power / base
        until power < 1
        return whole, rest
      end
      local whole
      whole, top_part_1 = muldiv(rest_1, burst_1, amount_1)
      top_1 = top_1 + whole
    end
  end
  local told_1 = false
  local book_1 = { 0, length_1, (now - now % length_1) / length_1, 0, 0 }
  local stored_1, until_1 = states[at + 1], nil
  local leased_1 = states[at + 2]
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
        local ahead_1, part_1, mended_1, kept_1, trace_1 = 0, 0, false, nil, nil
        do
          local state_1 = stored_1
          if state_1 and (#state_1 == 24 or #state_1 == 64) then
            local full, part, pace = unpack('<ddd', state_1)
            kept_1 = full - full % 1000000
            if full >= now and part >= 0 then
              ahead_1, part_1 = full - now, part
              if pace ~= pace_1 or part >= amount_1 then
                if part >= 1000000000000000 then
                  part_1 = part - 1000000000000000
                end
                if pace ~= pace_1 or part_1 >= amount_1 then
                  if part_1 > 0 and pace < 1 then
                    ahead_1 = ahead_1 + 1
                  end
                  local units = ahead_1 / pace
                  ahead_1, part_1, mended_1 = 0, 0, true
                  if units >= 0 and units <= 9007199254740992 then
                    ahead_1 = math.min(math.ceil(units * pace_1), 9007199254740992)
                  end
                end
              end
              if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
                local most, most_part = top_1, top_part_1
                local is_owed = part >= 1000000000000000
                if is_owed then
                  most_part = top_part_1 * 8 % amount_1
                  most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1
                end
                if ahead_1 > most or ahead_1 == most and part_1 > most_part then
                  ahead_1, part_1, mended_1 = most, most_part, true
                end
              end
            end
            if #state_1 == 64 then
              kept_1 = nil
              local trace, is_sound = { unpack('<ddddd', state_1, 25) }, true
              for at = 1, 5 do
                is_sound = is_sound and trace[at] >= 0 and trace[at] <= 9007199254740992
              end
              if is_sound and full + trace[1] > now then
                if mended_1 then
                  trace = { top_1, 0, 0, 0, 0 }
                end
                trace[1] = trace[1] - math.max(now - full, 0)
                trace[3], trace[5] = math.min(trace[3], ahead_1), math.min(trace[5], ahead_1)
                trace_1 = trace
              end
            end
          end
        end
        local kept_1
        local step_1, step_part_1 = unit_1 * cost_1, 0
        if rest_1 > 0 then
          local parts = rest_1 * cost_1
          if parts < 9007199254740992 then
            step_part_1 = parts % amount_1
            step_1 = step_1 + (parts - step_part_1) / amount_1
          else
            local function muldiv(a, b, c)
              local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
              while power * base <= b do
                power = power * base
              end
              repeat
                local digit = math.floor(b / power)
                local sum = rest * base + a * digit
                rest = sum % c
                whole = whole * base + (sum - rest) / c
                b, power = b - digit * power, power / base
              until power < 1
              return whole, rest
            end
            local whole
            whole, step_part_1 = muldiv(rest_1, cost_1, amount_1)
            step_1 = step_1 + whole
          end
        end
        ahead_1, part_1 = ahead_1 + step_1, part_1 + step_part_1
        if part_1 >= amount_1 then
          ahead_1, part_1 = ahead_1 + 1, part_1 - amount_1
        end
        local most, most_part
        most_part = top_part_1 * 8 % amount_1
        most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1
        if ahead_1 > most or ahead_1 == most and part_1 > most_part then
          ahead_1, part_1 = most, most_part
        end
        if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
          local part = part_1 + 1000000000000000
          if trace_1 then
            local t = trace_1
            local last = now + ahead_1 + t[1]
            local state = pack('<dddddddd', now + ahead_1, part, pace_1, t[1], t[2], t[3], t[4], t[5])
            call('SET', key_1, state, 'PXAT', format('%d', (last - last % 1000000) / 1000 + 1000))
          else
            local full = now + ahead_1
            local second = full - full % 1000000
            call('SET', key_1, pack('<ddd', full, part, pace_1), 'PXAT', format('%d', second / 1000 + 1000))
          end
        else
          if trace_1 then
            local part = part_1
            local t = trace_1
            local last = now + ahead_1 + t[1]
            local state = pack('<dddddddd', now + ahead_1, part, pace_1, t[1], t[2], t[3], t[4], t[5])
            call('SET', key_1, state, 'PXAT', format('%d', (last - last % 1000000) / 1000 + 1000))
          else
            local full_1 = now + ahead_1
            local second_of_1 = full_1 - full_1 % 1000000
            if second_of_1 == kept_1 then
              call('SETRANGE', key_1, '0', pack('<ddd', full_1, part_1, pace_1))
            else
              call('SET', key_1, pack('<ddd', full_1, part_1, pace_1), 'PXAT', format('%d', second_of_1 / 1000 + 1000))
            end
          end
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
  local ahead_1, part_1, mended_1, kept_1, trace_1 = 0, 0, false, nil, nil
  do
    local state_1 = stored_1
    if state_1 and (#state_1 == 24 or #state_1 == 64) then
      local full, part, pace = unpack('<ddd', state_1)
      kept_1 = full - full % 1000000
      if full >= now and part >= 0 then
        ahead_1, part_1 = full - now, part
        if pace ~= pace_1 or part >= amount_1 then
          if part >= 1000000000000000 then
            part_1 = part - 1000000000000000
          end
          if pace ~= pace_1 or part_1 >= amount_1 then
            if part_1 > 0 and pace < 1 then
              ahead_1 = ahead_1 + 1
            end
            local units = ahead_1 / pace
            ahead_1, part_1, mended_1 = 0, 0, true
            if units >= 0 and units <= 9007199254740992 then
              ahead_1 = math.min(math.ceil(units * pace_1), 9007199254740992)
            end
          end
        end
        if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
          local most, most_part = top_1, top_part_1
          local is_owed = part >= 1000000000000000
          if is_owed then
            most_part = top_part_1 * 8 % amount_1
            most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1
          end
          if ahead_1 > most or ahead_1 == most and part_1 > most_part then
            ahead_1, part_1, mended_1 = most, most_part, true
          end
        end
      end
      if #state_1 == 64 then
        kept_1 = nil
        local trace, is_sound = { unpack('<ddddd', state_1, 25) }, true
        for at = 1, 5 do
          is_sound = is_sound and trace[at] >= 0 and trace[at] <= 9007199254740992
        end
        if is_sound and full + trace[1] > now then
          if mended_1 then
            trace = { top_1, 0, 0, 0, 0 }
          end
          trace[1] = trace[1] - math.max(now - full, 0)
          trace[3], trace[5] = math.min(trace[3], ahead_1), math.min(trace[5], ahead_1)
          trace_1 = trace
        end
      end
    end
  end
  local use_1 = 0
  local reports
  reports, next_byte = unpack('<d', packed, next_byte)
  for report = 1, reports do
    local spent, returned
    spent, returned, next_byte = unpack('<dd', packed, next_byte)
    do
      local birth, generation
      birth, generation, next_byte = unpack('<dd', packed, next_byte)
      local age = book_1[3] - generation
      if birth == book_1[1] and birth > 0 and (age == 0 or age == 1) then
        local cost_1 = math.min(spent, book_1[4 + age])
        local back = math.min(returned, book_1[4 + age] - cost_1)
        book_1[4 + age] = book_1[4 + age] - cost_1 - back
        told_1 = told_1 or cost_1 + back > 0
        if cost_1 > 0 then
          local step_1, step_part_1 = unit_1 * cost_1, 0
          if rest_1 > 0 then
            local parts = rest_1 * cost_1
            if parts < 9007199254740992 then
              step_part_1 = parts % amount_1
              step_1 = step_1 + (parts - step_part_1) / amount_1
            else
              local function muldiv(a, b, c)
                local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
                while power * base <= b do
                  power = power * base
                end
                repeat
                  local digit = math.floor(b / power)
                  local sum = rest * base + a * digit
                  rest = sum % c
                  whole = whole * base + (sum - rest) / c
                  b, power = b - digit * power, power / base
                until power < 1
                return whole, rest
              end
              local whole
              whole, step_part_1 = muldiv(rest_1, cost_1, amount_1)
              step_1 = step_1 + whole
            end
          end
          ahead_1, part_1 = ahead_1 + step_1, part_1 + step_part_1
          if part_1 >= amount_1 then
            ahead_1, part_1 = ahead_1 + 1, part_1 - amount_1
          end
          local most, most_part
          most_part = top_part_1 * 8 % amount_1
          most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1
          if ahead_1 > most or ahead_1 == most and part_1 > most_part then
            ahead_1, part_1 = most, most_part
          end
          use_1 = 2
        end
      end
    end
  end
  local grant, runs, costs
  grant, runs, next_byte = unpack('<dd', packed, next_byte)
  for run = 1, runs do
    local cost_1, count
    cost_1, count, next_byte = unpack('<dd', packed, next_byte)
    local step_1, step_part_1 = unit_1 * cost_1, 0
    if rest_1 > 0 then
      local parts = rest_1 * cost_1
      if parts < 9007199254740992 then
        step_part_1 = parts % amount_1
        step_1 = step_1 + (parts - step_part_1) / amount_1
      else
        local function muldiv(a, b, c)
          local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
          while power * base <= b do
            power = power * base
          end
          repeat
            local digit = math.floor(b / power)
            local sum = rest * base + a * digit
            rest = sum % c
            whole = whole * base + (sum - rest) / c
            b, power = b - digit * power, power / base
          until power < 1
          return whole, rest
        end
        local whole
        whole, step_part_1 = muldiv(rest_1, cost_1, amount_1)
        step_1 = step_1 + whole
      end
    end
    local granted = 0
    local fits_1
    repeat
      local leaves_1 = true
      if cost_1 > 0 and book_1[4] + book_1[5] > 0 then
        local ahead_1, part_1 = ahead_1, part_1
        do
          local cost_1 = book_1[4] + book_1[5]
          local step_1, step_part_1 = unit_1 * cost_1, 0
          if rest_1 > 0 then
            local parts = rest_1 * cost_1
            if parts < 9007199254740992 then
              step_part_1 = parts % amount_1
              step_1 = step_1 + (parts - step_part_1) / amount_1
            else
              local function muldiv(a, b, c)
                local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
                while power * base <= b do
                  power = power * base
                end
                repeat
                  local digit = math.floor(b / power)
                  local sum = rest * base + a * digit
                  rest = sum % c
                  whole = whole * base + (sum - rest) / c
                  b, power = b - digit * power, power / base
                until power < 1
                return whole, rest
              end
              local whole
              whole, step_part_1 = muldiv(rest_1, cost_1, amount_1)
              step_1 = step_1 + whole
            end
          end
          ahead_1, part_1 = ahead_1 + step_1, part_1 + step_part_1
          if part_1 >= amount_1 then
            ahead_1, part_1 = ahead_1 + 1, part_1 - amount_1
          end
          local most, most_part
          most_part = top_part_1 * 8 % amount_1
          most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1
          if ahead_1 > most or ahead_1 == most and part_1 > most_part then
            ahead_1, part_1 = most, most_part
          end
        end
        local step_1, step_part_1 = unit_1 * cost_1, 0
        if rest_1 > 0 then
          local parts = rest_1 * cost_1
          if parts < 9007199254740992 then
            step_part_1 = parts % amount_1
            step_1 = step_1 + (parts - step_part_1) / amount_1
          else
            local function muldiv(a, b, c)
              local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
              while power * base <= b do
                power = power * base
              end
              repeat
                local digit = math.floor(b / power)
                local sum = rest * base + a * digit
                rest = sum % c
                whole = whole * base + (sum - rest) / c
                b, power = b - digit * power, power / base
              until power < 1
              return whole, rest
            end
            local whole
            whole, step_part_1 = muldiv(rest_1, cost_1, amount_1)
            step_1 = step_1 + whole
          end
        end
        local next_1, next_part_1 = ahead_1 + step_1, part_1 + step_part_1
        if next_part_1 >= amount_1 then
          next_1, next_part_1 = next_1 + 1, next_part_1 - amount_1
        end
        fits_1 = next_1 < top_1 or next_1 == top_1 and next_part_1 <= top_part_1 or cost_1 == 0
        leaves_1 = fits_1
      end
      local next_1, next_part_1 = ahead_1 + step_1, part_1 + step_part_1
      if next_part_1 >= amount_1 then
        next_1, next_part_1 = next_1 + 1, next_part_1 - amount_1
      end
      fits_1 = next_1 < top_1 or next_1 == top_1 and next_part_1 <= top_part_1 or cost_1 == 0
      fits_1 = fits_1 and leaves_1
      local admitted = fits_1
      if admitted then
        granted = granted + 1
        if cost_1 > 0 then
          ahead_1, part_1 = next_1, next_part_1
        end
        if cost_1 == 0 then
          granted = count
        end
      end
    until not admitted or granted == count
    if cost_1 > 0 and use_1 < 2 then use_1 = granted > 0 and 2 or 1 end
    if cost_1 > 0 then costs = true end
    if granted < count then
      grant = 0
    end
    if run == runs then
      if use_1 == 2 then
        if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
          local part = part_1 + 1000000000000000
          if trace_1 then
            local t = trace_1
            local last = now + ahead_1 + t[1]
            local state = pack('<dddddddd', now + ahead_1, part, pace_1, t[1], t[2], t[3], t[4], t[5])
            call('SET', key_1, state, 'PXAT', format('%d', (last - last % 1000000) / 1000 + 1000))
          else
            local full = now + ahead_1
            local second = full - full % 1000000
            call('SET', key_1, pack('<ddd', full, part, pace_1), 'PXAT', format('%d', second / 1000 + 1000))
          end
        else
          if trace_1 then
            local part = part_1
            local t = trace_1
            local last = now + ahead_1 + t[1]
            local state = pack('<dddddddd', now + ahead_1, part, pace_1, t[1], t[2], t[3], t[4], t[5])
            call('SET', key_1, state, 'PXAT', format('%d', (last - last % 1000000) / 1000 + 1000))
          else
            local full_1 = now + ahead_1
            local second_of_1 = full_1 - full_1 % 1000000
            if second_of_1 == kept_1 then
              call('SETRANGE', key_1, '0', pack('<ddd', full_1, part_1, pace_1))
            else
              call('SET', key_1, pack('<ddd', full_1, part_1, pace_1), 'PXAT', format('%d', second_of_1 / 1000 + 1000))
            end
          end
        end
      end
      if use_1 == 1 then
        if mended_1 then
          if ahead_1 > top_1 or ahead_1 == top_1 and part_1 > top_part_1 then
            local part = part_1 + 1000000000000000
            if trace_1 then
              local t = trace_1
              local last = now + ahead_1 + t[1]
              local state = pack('<dddddddd', now + ahead_1, part, pace_1, t[1], t[2], t[3], t[4], t[5])
              call('SET', key_1, state, 'PXAT', format('%d', (last - last % 1000000) / 1000 + 1000))
            else
              local full = now + ahead_1
              local second = full - full % 1000000
              call('SET', key_1, pack('<ddd', full, part, pace_1), 'PXAT', format('%d', second / 1000 + 1000))
            end
          else
            if trace_1 then
              local part = part_1
              local t = trace_1
              local last = now + ahead_1 + t[1]
              local state = pack('<dddddddd', now + ahead_1, part, pace_1, t[1], t[2], t[3], t[4], t[5])
              call('SET', key_1, state, 'PXAT', format('%d', (last - last % 1000000) / 1000 + 1000))
            else
              local full_1 = now + ahead_1
              local second_of_1 = full_1 - full_1 % 1000000
              if second_of_1 == kept_1 then
                call('SETRANGE', key_1, '0', pack('<ddd', full_1, part_1, pace_1))
              else
                call('SET', key_1, pack('<ddd', full_1, part_1, pace_1), 'PXAT', format('%d', second_of_1 / 1000 + 1000))
              end
            end
          end
        end
      end
    end
    local first_1, second_1, third_1, fourth_1 = 0, 0, 0, 0
    do
      local ahead_1, part_1 = ahead_1, part_1
      do
        local cost_1 = book_1[4] + book_1[5]
        local step_1, step_part_1 = unit_1 * cost_1, 0
        if rest_1 > 0 then
          local parts = rest_1 * cost_1
          if parts < 9007199254740992 then
            step_part_1 = parts % amount_1
            step_1 = step_1 + (parts - step_part_1) / amount_1
          else
            local function muldiv(a, b, c)
              local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
              while power * base <= b do
                power = power * base
              end
              repeat
                local digit = math.floor(b / power)
                local sum = rest * base + a * digit
                rest = sum % c
                whole = whole * base + (sum - rest) / c
                b, power = b - digit * power, power / base
              until power < 1
              return whole, rest
            end
            local whole
            whole, step_part_1 = muldiv(rest_1, cost_1, amount_1)
            step_1 = step_1 + whole
          end
        end
        ahead_1, part_1 = ahead_1 + step_1, part_1 + step_part_1
        if part_1 >= amount_1 then
          ahead_1, part_1 = ahead_1 + 1, part_1 - amount_1
        end
        local most, most_part
        most_part = top_part_1 * 8 % amount_1
        most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1
        if ahead_1 > most or ahead_1 == most and part_1 > most_part then
          ahead_1, part_1 = most, most_part
        end
      end
      first_1, second_1 = ahead_1, part_1
    end
    if not fits_1 and book_1[4] + book_1[5] > 0 and cost_1 + book_1[4] + book_1[5] > burst_1 then
      fourth_1 = math.max(fourth_1, (book_1[3] + (book_1[4] > 0 and 2 or 1)) * book_1[2] - now)
    end
    if not fits_1 then first_1 = -1 - first_1 end
    replies[place + 1] = granted
    replies[place + 2] = first_1
    replies[place + 3] = second_1
    replies[place + 4] = third_1
    replies[place + 5] = fourth_1
    place = place + 5
  end
  local life = 0
  if costs and grant > 0 then
    do
      local free
      do
        local ahead_1, part_1 = ahead_1, part_1
        do
          local cost_1 = book_1[4] + book_1[5]
          local step_1, step_part_1 = unit_1 * cost_1, 0
          if rest_1 > 0 then
            local parts = rest_1 * cost_1
            if parts < 9007199254740992 then
              step_part_1 = parts % amount_1
              step_1 = step_1 + (parts - step_part_1) / amount_1
            else
              local function muldiv(a, b, c)
                local base, power, whole, rest = math.floor(4503599627370496 / c), 1, 0, 0
                while power * base <= b do
                  power = power * base
                end
                repeat
                  local digit = math.floor(b / power)
                  local sum = rest * base + a * digit
                  rest = sum % c
                  whole = whole * base + (sum - rest) / c
                  b, power = b - digit * power, power / base
                until power < 1
                return whole, rest
              end
              local whole
              whole, step_part_1 = muldiv(rest_1, cost_1, amount_1)
              step_1 = step_1 + whole
            end
          end
          ahead_1, part_1 = ahead_1 + step_1, part_1 + step_part_1
          if part_1 >= amount_1 then
            ahead_1, part_1 = ahead_1 + 1, part_1 - amount_1
          end
          local most, most_part
          most_part = top_part_1 * 8 % amount_1
          most = top_1 * 8 + (top_part_1 * 8 - most_part) / amount_1
          if ahead_1 > most or ahead_1 == most and part_1 > most_part then
            ahead_1, part_1 = most, most_part
          end
        end
        free = math.floor((top_1 - ahead_1) / pace_1)
      end
      local most = most_1 - book_1[4] - book_1[5]
      if book_1[2] ~= length_1 then
        most = 0
      end
      grant = math.max(math.min(grant, math.floor(free / 4), most), 0)
    end
  else
    grant = 0
  end
  if grant > 0 then
    life = 9007199254740991
    if book_1[1] == 0 or book_1[4] + book_1[5] == 0 then
      book_1[1] = birth
    end
    book_1[4], told_1 = book_1[4] + grant, true
    life = math.min(life, (book_1[3] + 2) * book_1[2] - now, 2 * book_1[2])
  end
  if told_1 then
    local last = (book_1[3] + 2) * book_1[2]
    if book_1[4] + book_1[5] > 0 then
      local ends = math.max(last, now + ahead_1) + 2 * top_1
      local ends = ends - ends % 1000
      call('SET', account_1, pack('<ddddd', book_1[1], book_1[2], book_1[3], book_1[4], book_1[5]), 'PXAT', format('%d', ends / 1000 + 1))
    else
      call('DEL', account_1)
    end
  end
  replies[place + 1], replies[place + 2] = grant, life
  place = place + 2
  replies[place + 1], replies[place + 2], place = book_1[1], book_1[3], place + 2
end
place = place + 1
replies[place] = now
local parts = {}
for first = 1, place, 4000 do
  local last = math.min(first + 3999, place)
  parts[#parts + 1] = pack(string.rep('<d', last - first + 1), all(replies, first, last))
end
return table.concat(parts)
