-- correct: wraps the steps of an algorithm, for refund.lua and commit.lua, which correct what was charged before.

--# debt: notes the mark
local is_owed = marked >= 1000000000000000
held.owed = is_owed

--# cut_debt
--@ debt

--# hold_period: a settlement counts in the window that is stored, whatever its quota says
--@ own stored_period

--# convert: corrects nothing
--@ rebase

--# cut
--# most
if held.other then
  most, most_part = math.min(math.ceil(burst * 8 * pace), 2522880000000000), 0
else
  --@ own most
end

--# store_owed: what was marked stays marked
if held.owed then
  --@ store_debt
else
  --@ own store_owed
end
