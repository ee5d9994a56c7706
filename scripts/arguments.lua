-- arguments: reads the numbers of a call. Not a script of its own: a frame has these lines where it says `--@
-- numbers`.
--
-- A caller packs the numbers into one argument, because that is the cheapest form. A person may give them one by one,
-- in decimal; an empty one stands for -1. Behind the numbers comes the tag, if a policy is a log.
local packed, next_arg, tag = ARGV[1], 2
local form = '<form>'
if #packed < 32 then
  local numbers = {}
  for at = 1, #form - 1 do
    numbers[at] = (ARGV[at] == '' and -1 or ARGV[at]) + 0
  end
  packed, next_arg = pack(form, all(numbers)), #form
end
