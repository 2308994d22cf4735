-- SPDX-License-Identifier: MIT
-- Each method of stint.lua by what the library answers. Run by lua.py, with LuaJIT.
local stint = require "stint"
local ffi = require "ffi"

local path = assert(arg[1], "the path of a table that may be made")

local function equal(found, wanted, what)
    if found ~= wanted then
        error((what or "") .. ": found " .. tostring(found) .. ", wanted " .. tostring(wanted), 2)
    end
end

-- What is refused with nil and a reason that has these words.
local function refused(words, result, reason, number)
    equal(result, nil, words)
    assert(tostring(reason):find(words, 1, true), tostring(reason) .. " says nothing of " .. words)
    return number
end

-- What raises an error that has these words, at the line of the call.
local function raises(words, call, ...)
    local good, text = pcall(call, ...)
    equal(good, false, words)
    assert(text:find(words, 1, true), text .. " says nothing of " .. words)
end

local limit = assert(stint.open{max_entries = 1000, labels = 16, prefault = true, on_full = "refuse",
                                secret = ("s"):rep(192),
                                policies = {"3/52w name=a", "2/52w name=b"}})

-- Takes, looks, refunds, resets.
for left = 2, 0, -1 do
    local allowed, verdict = limit:take("a", "ann")
    equal(allowed, true)
    equal(verdict.remaining, left)
    equal(verdict:retry_seconds(), 0)
end
local allowed, verdict = limit:take("a", "ann")
equal(allowed, false)
equal(verdict:has(stint.FIRST_REFUSAL), true)
assert(verdict:retry_seconds() > 0 and verdict:retry_seconds() <= 52 * 7 * 86400)
assert(verdict:reset_seconds() > 0)
equal(limit:allows("a", "ann"), false)
equal(limit:allows("a", "bob", 3), true)
equal(limit:take("a", "eve", 4), false)
equal(limit.verdict:retry_seconds(), math.huge)
equal(limit:peek("a", "eve"), true)
local own = stint.verdict()
equal(select(2, limit:take("a", "eve", 2, own)), own)
limit:take("a", "bob")
equal(own.granted, 2)
equal(limit:refund("eve", own, 1), 1)
equal(limit:refund("eve", own), 1)
equal(limit:refund("eve", own), 0)
equal(own.granted, 0)
raises("the verdict of its take, not eve", limit.refund, limit, "a", "eve", own)
equal(limit:peek("a", "eve", 3), true)
equal(limit:reset("a", "ann"), true)
equal(limit:reset("a", "ann"), false)
equal(limit:allows("a", "ann", 3), true)
equal(limit:charge("a", "ann", 5), true)
equal(limit.verdict.used, 8)

equal(limit:decide("a", "dan", 9, stint.PARTIAL), true)
equal(limit.verdict.granted, 3)
equal(limit:decide("a", "gil", 2, 0, 1), false)
equal(limit:decide("a", "gil", 2, 1), false)
equal(limit.verdict:has(stint.BAD_REQUEST), true)

-- A request has a burst of its own.
limit:policy "10/52w burst=10 name=bucket"
equal(limit:decide("bucket", "hal", 9, stint.PARTIAL, nil, 6), true)
equal(limit.verdict.granted, 6)
equal(limit:decide("bucket", "hal", 1, 0, nil, 6), false)
equal(limit:decide_all{{"bucket", "hal", 3, 0, nil, 8}}, false)
equal(limit:decide_all{{"bucket", "hal", 2, 0, nil, 8}}, true)
equal(limit:take("bucket", "hal", 2), true)
equal(limit:check("bucket", "hal", 1, 0, nil, 6), true)
refused("burst goes with token buckets only", limit:check("a", "hal", 1, 0, nil, 6))
refused("STINT_CHARGE does not go with a burst",
        limit:check("bucket", "hal", 1, stint.CHARGE, nil, 6))
limit:remove "bucket"

-- Keys with limits of their own.
limit:policy "2/52w name=c ban=1h"
equal(limit:override("c", "vip", 5, 60), true)
equal(limit:allows("c", "vip", 5), true)
equal(limit:take("c", "vip"), false)
equal(limit.verdict:has(stint.OVERRIDDEN), true)
local tokens, left = limit:overridden("c", "vip")
equal(tokens, 5)
assert(left > 50 and left <= 60.02, left)
equal(limit:clear("c", "vip"), true)
equal(limit:take("c", "bad", 3), false)
equal(limit:take("c", "bad"), false)
equal(limit.verdict:has(stint.BANNED), true)
equal(limit:overridden("c", "bad"), 0)
equal(limit:stats().banned, 1)
equal(refused("", limit:overridden("c", "vip")), 2)
equal(refused("", limit:clear("c", "vip")), 2)
refused("", limit:override("c", "vip", 5, 400 * 86400))
raises("tokens is a whole number", limit.override, limit, "c", "vip", -1, 60)
limit:remove "c"

-- Keys.
local key = limit:key("ab", "c")
equal(limit:allows("b", key, 2), true)
equal(limit:allows("b", limit:key("ab", "c")), false)
equal(limit:allows("b", limit:key("a", "bc"), 2), true)
equal(limit:allows("b", limit:key("abc"), 2), true)
equal(limit:allows("b", "abc"), false)
local user = limit:key_of_id(7)
equal(limit:allows("b", user, 2), true)
equal(limit:allows("b", limit:key_of_id(7ULL)), false)
assert(limit:key_of_id(8) ~= user and limit:key("7") ~= user)
equal(limit:key_of_id(2^53), limit:key_of_id(9007199254740992ULL))
local address = limit:address("\192\0\2\1")
equal(limit:allows("b", address, 2), true)
equal(limit:allows("b", limit:address("\192\0\2\1", 32)), false)
equal(limit:address(("\0"):rep(10) .. "\255\255\192\0\2\1"), address) -- mapped
assert(limit:address("\192\0\2\2") ~= address)
equal(limit:address("\192\0\2\2", 24), limit:address("\192\0\2\3", 24))
local six = "\32\1\13\184\0\0\0\1"
equal(limit:address(six .. ("a"):rep(8)), limit:address(six .. ("b"):rep(8)))
assert(limit:address(six .. ("a"):rep(8), 32, 128) ~= limit:address(six .. ("b"):rep(8), 32, 128))
equal(limit:address "", limit:address "unix:")
equal(limit:allows("b", stint.GLOBAL), true)

-- Several requests.
equal(limit:decide_all{{"a", "joe", 2}, {"b", "joe"}}, true)
local whole, group = limit:decide_all{{"a", "joe", 2}, {"b", "joe"}}
equal(whole, false)
equal(group:verdict(1).allowed, false)
equal(group:verdict(2).allowed, true)
equal(group:verdict(2).granted, 0)
local two = limit:group(2)
two:set(1, "a", "kim"):set(2, "b", "kim")
equal(two:decide_all(), true)
equal(two:refund(), 2)
two:set(1, "b", "lea", 2):set(2, "b", "lea", 2)
equal(two:decide_each(), 1)
raises("the group has 2 requests, and no 3", two.set, two, 3, "a", "x")
refused("no policy", two:set(1, "none", "x"))
refused("no policy", limit:decide_all{{"none", "x"}})

-- Telling.
limit:take("a", "may", 3)
local fields = limit:headers(select(2, limit:take("a", "may")), "both")
equal(fields["RateLimit-Policy"], '"a";q=3;w=31449600')
equal(fields["X-RateLimit-Limit"], "3")
assert(tonumber(fields["Retry-After"]) > 0)
equal(next(limit:headers(select(2, limit:take("a", "nan")), "none")), nil)
equal(group:headers()["RateLimit-Policy"], '"a";q=3;w=31449600, "b";q=2;w=31449600')
local twice, bad = limit:decide_all{{"a", "pat"}, {"a", "pat"}}
equal(twice, false)
equal(bad:verdict(2).flags, stint.BAD_REQUEST)
raises("the style is", limit.headers, limit, limit.verdict, "modern")
equal(limit:label("may", "may"), true)
local stats = limit:stats "b"
equal(stats.refused, 5)
equal(limit:stats().policies, 2)
assert(limit:metrics():find("# EOF", 1, true))
local text = limit:metrics{labels = {table = "x"}, no_eof = true, no_scan = true}
assert(text:find('table="x"', 1, true) and not text:find("# EOF", 1, true))
refused("label", limit:metrics{labels = {policy = "x"}})
equal(stint.version():match "^%d+%.%d+%.%d+$" ~= nil, true)

-- Policies.
equal(limit:policy "3/52w name=a", limit:find "a")
equal(refused("another limit", limit:policy "4/52w name=a"), 17)
refused("", limit:policy "many/52w")
equal(limit:change("a", "5/52w name=a"), true)
equal(limit:check("a", "x", 1, stint.PEEK), true)
equal(refused("STINT_DRAIN", limit:check("a", "x", 1, stint.CHARGE + stint.DRAIN)), 22)
equal(refused("no policy", limit:check("none", "x")), 2)
equal(stint.note "5/m ban=1h", "")
assert(stint.note("5/m ban=1s"):find("shorter than the window", 1, true))
equal(refused("no unit", stint.note "5/fortnight"), 22)
equal(limit:text "a", '5/52 weeks name="a"')
refused("stint_policies_apply", limit:change("a", "5/s name=a"))
equal(limit:apply("7/52w name=a\n9/52w name=c", {dry_run = true}), true)
refused("no policy", limit:find "c")
equal(limit:apply("7/52w name=a\n9/52w name=c", {prune = true}), true)
refused("no policy", limit:find "b")
equal(limit:allows("c", "x", 9), true)
equal(limit:remove "c", true)
refused("no policy", limit:take("c", "x"))
refused("line 2", limit:apply "7/52w name=a\nx")

-- What makes no sense.
equal(refused("max_entries", stint.open{max_entries = 0}), 22)
refused("no option 'keys'", stint.open{keys = 1})
refused("on_full", stint.open{max_entries = 1, on_full = "drop"})
refused("secret", stint.open{max_entries = 1, secret = "short"})
refused("many: ", stint.open{max_entries = 10, policies = {"many"}})

-- No number is cut off to another, and no string at a NUL: nothing is charged, nothing changed.
local nan, charged = 0 / 0, limit:stats "a"
limit:take("a", "kept")
for _, number in ipairs{1.5, "1"} do
    raises("max_entries is a whole number", stint.open, {max_entries = number})
end
for _, cost in ipairs{-1, 0.5, 2^32, nan} do
    for _, method in ipairs{"take", "allows", "decide"} do
        raises("cost is a whole number", limit[method], limit, "a", "x", cost)
    end
end
for _, id in ipairs{2^53 + 2, -1, "7", -1LL} do
    raises("id is a whole number", limit.key_of_id, limit, id)
end
for _, key in ipairs{7, 7LL, ffi.new "struct stint_verdict"} do
    raises("a key is a string", limit.take, limit, "a", key)
end
raises("a key is a string", limit.take, limit, "a", nil)
for _, id in ipairs{0.9, nan, 2^32, -1, math.huge} do
    for _, method in ipairs{"take", "allows", "decide", "reset", "override", "overridden", "clear",
                            "text", "change", "remove", "stats"} do
        raises("a policy's id is a whole number", limit[method], limit, id, "x")
    end
end
raises("a policy's name is a string", limit.take, limit, nil, "x")
raises("a policy's name is a string", limit.take, limit, {}, "x")
for _, number in ipairs{1.5, 2^32, -1, nan, "1", limit.verdict} do
    raises("flags is a whole number", limit.decide, limit, "a", "x", 1, number)
    raises("own_limit is a whole number", limit.decide, limit, "a", "x", 1, 0, number)
    raises("own_burst is a whole number", limit.decide, limit, "a", "x", 1, 0, nil, number)
end
for _, now in ipairs{-5, 0.5, nan, 2^64, "1", -5LL, {}} do
    raises("now is a whole number", limit.take, limit, "a", "x", 1, nil, now)
    raises("now is a whole number", limit.allows, limit, "a", "x", 1, now)
    raises("now is a whole number", limit.decide, limit, "a", "x", 1, 0, nil, nil, nil, now)
    raises("now is a whole number", limit.decide_all, limit, {{"a", "x"}}, now)
    raises("now is a whole number", two.decide_each, two, now)
end
for _, prefix in ipairs{-1, 33, 24.9, nan, "24"} do
    raises("prefix4 is a whole number", limit.address, limit, "\192\0\2\1", prefix)
end
for _, prefix in ipairs{-1, 129, 64.5} do
    raises("prefix6 is a whole number", limit.address, limit, "\192\0\2\1", 24, prefix)
end
for _, number in ipairs{0.5, -1, nan, 2^32} do
    raises("tokens is a whole number", limit.refund, limit, "kept", limit.verdict, number)
    raises("tokens is a whole number", limit.override, limit, "a", "x", number, 1)
    raises("n is a whole number", limit.group, limit, number)
end
for _, seconds in ipairs{-0.5, nan, math.huge, "60"} do
    raises("seconds is a number", limit.override, limit, "a", "x", 1, seconds)
end
for _, i in ipairs{1.5, 0, nan, "1"} do
    raises("the group has 2 requests", two.set, two, i, "a", "x")
    raises("the group has 2 requests", two.verdict, two, i)
end
for _, call in ipairs{
    {limit.policy, limit, "1/s\0 name=x"}, {limit.change, limit, "a", "7/52w\0 name=x"},
    {limit.apply, limit, "7/52w name=a\0\n1/s"}, {limit.find, limit, "a\0"}, {limit.take, limit, "a\0", "x"},
    {limit.metrics, limit, {labels = {table = "x\0y"}}}, {limit.metrics, limit, {labels = {["table\0"] = "x"}}},
    {stint.open, {max_entries = 1, path = path .. "\0.more"}}, {stint.attach, {path = path .. "\0.more"}},
    {stint.open, {max_entries = 1, policies = {"1/s\0"}}},
} do
    raises("without a NUL", unpack(call))
end
raises("path is a string", stint.open, {max_entries = 1, path = 7})
equal(io.open(path), nil)
equal(limit:stats("a").allowed, charged.allowed + 1)
equal(limit:text "a", '7/52 weeks name="a"')
equal(limit:take("a", "now", 1, nil, limit:now()), true)
equal(limit:take("a", "now", 1, nil, tonumber(limit:now())), true)
equal(bit.band(select(2, limit:take("a", "now", 0, nil, 5)).flags, stint.MISTAKEN_NOW), 512)

-- A request that cannot be set is the one that it was.
two:set(1, "a", "same", 2, stint.PEEK, 5, 4):set(2, "a", "same")
local before = ffi.string(two.requests, ffi.sizeof(two.requests))
raises("cost", two.set, two, 1, 1, "other", 0.5)
raises("flags", two.set, two, 1, 1, "other", 1, 0.5)
raises("own_limit", two.set, two, 1, 1, "other", 1, 0, -1)
raises("own_burst", two.set, two, 1, 1, "other", 1, 0, 1, -1)
raises("a key", two.set, two, 1, 1, nil)
refused("no policy", two:set(1, "none", "other"))
equal(ffi.string(two.requests, ffi.sizeof(two.requests)) == before, true)

-- A table in a file, by two handles; a reader.
local file = assert(stint.open{path = path, max_entries = 1000, policies = {"3/52w name=a"}})
equal(file:allows("a", "x", 2), true)
local other = assert(stint.attach{path = path})
equal(other:allows("a", "x", 2), false)
equal(other:allows("a", "x"), true)
local reader = assert(stint.attach{path = path, read_only = true})
equal(reader:peek("a", "x"), false)
equal(reader:peek("a", "y"), true)
equal(refused("STINT_READ_ONLY", reader:policy "1/s name=b"), 30)
refused(path, stint.open{path = path, max_entries = 500})
equal(refused(".none", stint.attach{path = path .. ".none"}), 2)

-- Another state's limiter.
local words = other:share()
equal(stint.shared(words):peek("a", "x"), false)
refused("not of limit:share", stint.shared "nonsense")
refused("this is another", stint.shared("1:" .. words:match ":(%x+)"))
stint.shared(words):close()

-- Closing, and what is used after it.
local one = limit:group(1)
one:set(1, "a", "x")
limit:close()
raises("closed", function() limit:take("a", "x") end)
raises("closed", function() limit:close() end)
raises("closed", function() one:decide_all() end)
file, reader = nil, nil -- luacheck: ignore
collectgarbage()
collectgarbage()
for line in io.lines "/proc/self/maps" do
    assert(not line:find(path, 1, true), "the collected limiter has not closed " .. path)
end

-- No memory for each decision, once the loop is compiled.
local many = assert(stint.open{max_entries = 1000, policies = {"1M/52w name=many"}})
local client, bytes = "192.0.2.1", "\192\0\2\1"
local function allocated(work)
    work(10000)
    collectgarbage()
    collectgarbage "stop"
    local before = collectgarbage "count"
    work(100000)
    local more = (collectgarbage "count" - before) * 1024
    collectgarbage "restart"
    return more
end
for name, work in pairs{
    take = function(n) for _ = 1, n do many:take("many", client) end end,
    allows = function(n) for _ = 1, n do many:allows("many", many:address(bytes, 24), 2) end end,
    decide = function(n) for _ = 1, n do many:decide("many", client, 1, stint.PARTIAL) end end,
    group = function(n)
        local of = many:group(2)
        for _ = 1, n do
            of:set(1, "many", client)
            of:set(2, "many", bytes)
            of:decide_all()
        end
    end,
} do
    local more = allocated(work)
    assert(more < 100000, name .. " has allocated " .. more .. " bytes in 100,000 calls")
end
assert(ffi.sizeof "struct stint_verdict" == 64)

-- The module may be loaded again, as servers do that read their configuration anew.
package.loaded.stint = nil
local again = require "stint"
equal(assert(again.open{max_entries = 10, policies = {"1/s name=a"}}):allows("a", "x"), true)

-- A token bucket: a token comes back in 26 weeks.
local bucket = assert(stint.open{max_entries = 1000, policies = {"2/52w burst=2 name=c"}})
equal(bucket:take("c", "ann", 2, own), true)
equal(own.granted, 2)
assert(own:reset_seconds() > 51 * 7 * 86400)
equal(bucket:take("c", "ann"), false)
assert(bucket.verdict:retry_seconds() <= 26 * 7 * 86400)
equal(bucket:refund("ann", own), 2)
equal(bucket:peek("c", "ann", 1), true)
print "all methods answer"
