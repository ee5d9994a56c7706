-- muldiv: returns the quotient and the remainder of a * b / c, exactly.
--
-- Not a script of its own: other files include this function. It is defined inside the branch that needs it, so that
-- all other calls do not pay for it.
--
-- KEYS    none. Arguments: whole numbers a <= c, b < 2^53, 0 < c < 10^15.
-- Stored  nothing.
-- Reply   the quotient, which is at most b, and the remainder, which is below c.
-- Effects none.
-- Pitfalls a double holds integers exactly up to 2^53, and a * b may be far above. b is therefore split into digits
--         of the greatest base for which no intermediate number exceeds 2^53, and divided as by hand: the first digit
--         first, the remainder carried to the next.

--# muldiv: the quotient and the remainder of a * b / c
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
