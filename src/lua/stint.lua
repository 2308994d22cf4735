-- SPDX-License-Identifier: MIT
-- Copyright (c) 2026 The stint authors
--
-- stint for LuaJIT: the library by its FFI, for nginx, dnsdist and whatever else runs LuaJIT.
--
--     local stint = require "stint"
--     local limit = assert(stint.open{path = "/run/api.table", max_entries = 100000,
--                                     policies = {"100/minute name=api"}})
--     local allowed, verdict = limit:take("api", client)
--     if not allowed then
--         refuse(verdict:retry_seconds())
--     end
--
-- README.md beside this file has more. stint.h is the contract: what it says of a function of C
-- holds for the method of that name.
--
-- Errors. What sets up, changes or reads returns nil and the library's reason; so does a decision
-- by the name of a policy that there is not. Arguments that make no sense raise an error.
local ffi = require "ffi"

-- What is used of stint.h; tests/lang/lua compares the two. The module may be loaded again.
local DECLARATIONS = [[
struct stint_limiter;
struct sockaddr;
typedef uint64_t stint_key; /* passed as the struct is, with which LuaJIT compiles no call */

struct stint_options {
    size_t size;
    uint64_t max_entries;
    uint32_t shards;
    uint32_t max_policies;
    uint32_t on_full;
    uint32_t flags;
    const char *path;
    uint64_t (*clock)(void);
    const void *secret;
    uint32_t mode;
    uint32_t labels;
};

struct stint_policy {
    size_t size;
    char name[64];
    uint32_t limit;
    uint32_t capacity;
    uint32_t max_reserved;
    uint32_t stripes;
    uint64_t window;
    int64_t start;
    uint32_t flags;
    uint32_t near_limit;
    uint32_t jitter;
    uint32_t calendar;
    int32_t offset;
    uint32_t ban_after;
    uint64_t ban;
    uint32_t burst;
    uint32_t reserved;
    uint64_t ban_within;
};

struct stint_verdict {
    bool allowed;
    uint32_t flags;
    uint32_t capacity;
    uint32_t used;
    uint32_t remaining;
    uint32_t granted;
    uint64_t window;
    uint64_t reset_after;
    uint64_t retry_after;
    uint32_t policy;
    uint32_t generation;
    uint64_t unit;
};

struct stint_request {
    stint_key key;
    uint32_t policy;
    uint32_t cost;
    uint32_t limit;
    uint32_t flags;
    uint32_t burst;
    uint32_t reserved;
};

struct stint_stats {
    size_t size;
    uint64_t memory;
    uint64_t slots;
    uint64_t used;
    uint64_t live;
    uint64_t placed;
    uint64_t untracked;
    uint64_t replaced;
    uint64_t clock_steps;
    uint64_t stray_tokens;
    uint64_t unknown_policy;
    uint64_t resets;
    uint32_t shards;
    uint32_t policies;
    uint64_t bad_requests;
    uint32_t processes;
    uint32_t lost;
    uint64_t overrides;
    uint64_t barred;
    uint64_t banned;
    uint64_t max_entries;
    uint64_t labels;
    uint64_t used_labels;
    uint32_t max_policies;
    uint32_t policy_ids;
    uint32_t gone_ids;
    uint32_t reach;
    uint32_t max_reach;
    uint32_t removed;
};

struct stint_policy_stats {
    size_t size;
    uint64_t allowed;
    uint64_t refused;
    uint64_t shadowed;
    uint64_t first_refusals;
    uint64_t untracked;
    uint64_t near_limit;
    uint64_t charged;
    uint64_t refunded;
    uint64_t bans;
    uint64_t strikes_lost;
    uint64_t refunds_lost;
    uint64_t mistaken_nows;
};

struct stint_metrics_options {
    size_t size;
    const char *const *labels;
    uint32_t flags;
    uint32_t reserved;
};

struct stint_change;

int stint_open(const struct stint_options *options, struct stint_limiter **limiter);
int stint_attach(const struct stint_options *options, struct stint_limiter **limiter);
void stint_close(struct stint_limiter *limiter);
int stint_policy_parse(const char *text, struct stint_policy *policy, const char **wrong);
int stint_policy_format(const struct stint_policy *policy, char *buffer, size_t size);
int stint_policy_note(const struct stint_policy *policy, char *buffer, size_t size);
int stint_policy_add(struct stint_limiter *limiter, const struct stint_policy *policy,
                     uint32_t *id);
int stint_policy_change(struct stint_limiter *limiter, uint32_t id,
                        const struct stint_policy *policy);
int stint_policy_remove(struct stint_limiter *limiter, uint32_t id);
int stint_policies_apply(struct stint_limiter *limiter, const char *text, uint32_t flags,
                         const char **wrong,
                         void (*told)(void *context, const struct stint_change *change),
                         void *context);
int stint_policy_find(const struct stint_limiter *limiter, const char *name, uint32_t *id);
int stint_policy_get(const struct stint_limiter *limiter, uint32_t id,
                     struct stint_policy *policy);
stint_key stint_key_of(const struct stint_limiter *limiter, const void *bytes, size_t length);
stint_key stint_key_of_id(const struct stint_limiter *limiter, uint64_t id);
stint_key stint_key_join(const struct stint_limiter *limiter, stint_key key, const void *bytes,
                         size_t length);
stint_key stint_key_address(const struct stint_limiter *limiter, const struct sockaddr *address,
                            unsigned prefix4, unsigned prefix6);
bool stint_take(struct stint_limiter *limiter, uint32_t policy, stint_key key, uint32_t cost,
                uint64_t now, struct stint_verdict *verdict);
bool stint_decide(struct stint_limiter *limiter, const struct stint_request *request,
                  uint64_t now, struct stint_verdict *verdict);
int stint_request_check(const struct stint_limiter *limiter, const struct stint_request *request);
size_t stint_decide_batch(struct stint_limiter *limiter, const struct stint_request *requests,
                          size_t n, uint64_t now, struct stint_verdict *verdicts);
bool stint_decide_all(struct stint_limiter *limiter, const struct stint_request *requests,
                      size_t n, uint64_t now, struct stint_verdict *verdicts);
uint32_t stint_refund(struct stint_limiter *limiter, stint_key key,
                      struct stint_verdict *verdict, uint32_t tokens);
uint64_t stint_refund_all(struct stint_limiter *limiter, const struct stint_request *requests,
                          struct stint_verdict *verdicts, size_t n);
bool stint_reset(struct stint_limiter *limiter, uint32_t policy, stint_key key);
int stint_override(struct stint_limiter *limiter, uint32_t policy, stint_key key, uint32_t limit,
                   uint64_t until);
int stint_override_get(const struct stint_limiter *limiter, uint32_t policy, stint_key key,
                       uint32_t *limit, uint64_t *until);
int stint_override_clear(struct stint_limiter *limiter, uint32_t policy, stint_key key);
uint64_t stint_now(const struct stint_limiter *limiter);
int stint_stats_get(struct stint_limiter *limiter, struct stint_stats *stats);
int stint_policy_stats_get(struct stint_limiter *limiter, uint32_t id,
                           struct stint_policy_stats *stats);
int stint_label(struct stint_limiter *limiter, stint_key key, const void *bytes, size_t length);
int stint_metrics(struct stint_limiter *limiter, const struct stint_metrics_options *options,
                  char *buffer, size_t size);
int stint_headers(const struct stint_limiter *limiter, uint32_t style,
                  const struct stint_verdict *verdicts, size_t n, char *buffer, size_t size);
const char *stint_strerror(int error);
const char *stint_reason(void);
const char *stint_version(void);
]]
if not pcall(ffi.sizeof, "struct stint_verdict") then
    ffi.cdef(DECLARATIONS)
    ffi.cdef "int getpid(void);"
end

-- By its soname: a version that these declarations do not fit is not found.
local C = ffi.load "libstint.so.0.5"

local stint = {
    -- Flags of requests, or-ed together with bit.bor, or added.
    PEEK = 0x200, PARTIAL = 0x400, DRAIN = 0x800, RESERVE = 0x1000, CHARGE = 0x2000,
    TENTATIVE = 0x4000,
    -- Flags of verdicts: bit.band(verdict.flags, stint.FIRST_REFUSAL) ~= 0.
    FIRST_REFUSAL = 1, SHADOWED = 2, UNTRACKED = 4, REPLACED = 8, UNKNOWN_POLICY = 16,
    NEAR_LIMIT = 32, BAD_REQUEST = 64, BANNED = 128, OVERRIDDEN = 256, MISTAKEN_NOW = 512,
    -- A key that all requests share.
    GLOBAL = 0ULL,
}

local ON_FULL = {admit = 0, refuse = 1, replace = 2}
local OPEN_FLAGS = {
    prefault = 0x20000, small_pages = 0x40000, precise_clock = 0x80000, read_only = 0x100000,
}
local STYLES = {none = 0, draft = 0x10000000, legacy = 0x20000000, both = 0x30000000}
local DRY_RUN, PRUNE = 0x400000, 0x800000
local METRICS_NO_EOF, METRICS_NO_SCAN = 0x2000000, 0x4000000
local SECRET_SIZE = 192
local UINT32_MAX = 4294967295
local NOW = 18446744073709551613ULL
local NEVER = 18446744073709551615ULL
local AF_UNSPEC, AF_INET, AF_INET6 = 0, 2, 10

local new, cast, copy, str = ffi.new, ffi.cast, ffi.copy, ffi.string
local floor = math.floor

local uint64_t, int64_t = ffi.typeof "uint64_t", ffi.typeof "int64_t"
local requests_t = ffi.typeof "struct stint_request[?]"
local verdicts_t = ffi.typeof "struct stint_verdict[?]"
local verdict_t = ffi.typeof "struct stint_verdict"
local ids_t = ffi.typeof "uint32_t[?]"
local buffer_t = ffi.typeof "char[?]"
local sockaddr_p = ffi.typeof "const struct sockaddr *"
local limiter_p = ffi.typeof "struct stint_limiter *"

-- A Lua state has one thread, and none of the library's functions that use these calls back.
local limiter_out = new "struct stint_limiter *[1]"
local id_out = new "uint32_t[1]"
local until_out = new "uint64_t[1]"
local policy_buffer = new "struct stint_policy"
local address4 = new "struct { uint16_t family, port; uint8_t bytes[4], zero[8]; }"
local address6 = new [[
    struct { uint16_t family, port; uint32_t flow; uint8_t bytes[16]; uint32_t scope; }]]
local address_other = new("struct { uint16_t family; uint8_t zero[26]; }", AF_UNSPEC)
address4.family, address6.family = AF_INET, AF_INET6

-- nil, the reason, the number of the error.
local function failure(error)
    local reason = str(C.stint_reason())
    return nil, reason ~= "" and reason or str(C.stint_strerror(error)), -error
end

-- Stops at what C would cut off to another number.
local function whole(value, what, most)
    if type(value) ~= "number" or not (value >= 0 and value <= most) or floor(value) ~= value then
        error(what .. " is a whole number from 0 to " .. string.format("%.0f", most) .. ", not "
            .. tostring(value), 3)
    end
    return value
end

-- Stops at what C would cut off to another string.
local function string_of(value, what)
    if type(value) ~= "string" or value:find("\0", 1, true) then
        error(what .. " is a string without a NUL, not " .. (type(value) == "string" and
            string.format("%q", value) or tostring(value)), 3)
    end
    return value
end

-- A time of the caller's: ns since the epoch; nil: the limiter reads its clock.
local function time_of(now)
    if now == nil then
        return NOW
    elseif ffi.istype(uint64_t, now) or ffi.istype(int64_t, now) and now >= 0 then
        return now
    elseif type(now) ~= "number" or not (now >= 0 and now < 2^64) or floor(now) ~= now then
        error("now is a whole number of ns since the epoch, not " .. tostring(now), 3)
    end
    return now
end

-- ---- Verdicts -----------------------------------------------------------------------------------

local verdict_methods = {}

-- Seconds until the request would fit; of a reservation, until its tokens are there. math.huge: it
-- never will.
function verdict_methods:retry_seconds()
    local wait = self.retry_after
    if wait == NEVER then
        return math.huge
    end
    return tonumber(wait) / 1e9
end

-- Seconds to the end of the window, or until the bucket is full.
function verdict_methods:reset_seconds()
    return tonumber(self.reset_after) / 1e9
end

-- Whether it has that flag, one of the numbers above.
function verdict_methods:has(flag)
    return bit.band(self.flags, flag) ~= 0
end

pcall(ffi.metatype, "struct stint_verdict", {__index = verdict_methods})

-- A verdict of the caller's own, for limit:take and limit:decide. Without one they return the
-- limiter's, which its next decision overwrites.
function stint.verdict()
    return new "struct stint_verdict"
end

-- ---- Opening ------------------------------------------------------------------------------------

local limit = {}   -- methods of a limiter
limit.__index = limit
local closed = {}  -- of one that was closed
function closed.__index() -- of its methods, and of `limiter`, by which its groups decide
    error("the limiter is closed", 2)
end

local function handle(limiter)
    return setmetatable({
        limiter = limiter,
        ids = {},                               -- policies by their names
        request = new "struct stint_request",   -- used again by each call
        verdict = new "struct stint_verdict",
        id = new "uint32_t[1]",
        groups = {},
    }, limit)
end

-- Puts a table's options into a struct. Returns nil and the reason if it cannot.
local function read_options(from)
    local options = new "struct stint_options"
    options.size = ffi.sizeof "struct stint_options"
    for name, value in pairs(from) do
        if name == "max_entries" then
            options.max_entries = whole(value, name, 2^53)
        elseif name == "shards" or name == "max_policies" or name == "mode" or name == "labels" then
            options[name] = whole(value, name, UINT32_MAX)
        elseif name == "path" then
            options.path = string_of(value, name)
        elseif name == "secret" then
            if type(value) ~= "string" or #value ~= SECRET_SIZE then
                return nil, "secret is a string of " .. SECRET_SIZE .. " bytes"
            end
            options.secret = value
        elseif name == "on_full" then
            if not ON_FULL[value] then
                return nil, 'on_full is "admit", "refuse" or "replace"'
            end
            options.on_full = ON_FULL[value]
        elseif OPEN_FLAGS[name] then
            if value then
                options.flags = bit.bor(options.flags, OPEN_FLAGS[name])
            end
        elseif name ~= "policies" then
            return nil, "there is no option '" .. tostring(name) .. "'"
        end
    end
    return options
end

local function open(by, from)
    local options, wrong = read_options(from)
    if not options then
        return nil, wrong
    end
    for _, text in ipairs(from.policies or {}) do
        string_of(text, "a policy's text") -- before a file is made
    end
    local error = by(options, limiter_out)
    if error ~= 0 then
        return failure(error)
    end
    local self = handle(ffi.gc(limiter_out[0], C.stint_close))
    for _, text in ipairs(from.policies or {}) do
        local id, why, number = self:policy(text)
        if not id then
            self:close()
            return nil, text .. ": " .. why, number
        end
    end
    return self
end

-- Opens a limiter, and adds policies to it.
--   from  a table: max_entries; path, shards, max_policies, mode, labels, secret as in struct
--         stint_options; on_full = "admit", "refuse" or "replace"; prefault, small_pages,
--         precise_clock = true; policies = {"100/minute name=api", ...}
-- Returns the limiter, which is closed when it is collected; nil, the reason, the errno.
function stint.open(from)
    return open(C.stint_open, from)
end

-- Opens the table of a file that is there, whatever its shape.
--   from  a table: path; on_full, the flags and policies as above; read_only = true
-- Returns as stint.open.
function stint.attach(from)
    return open(C.stint_attach, from)
end

-- Words that stint.shared makes a limiter of, in another Lua state of the same process: for servers
-- with a state for each thread. Only limit:close closes it from now on.
function limit:share()
    ffi.gc(self.limiter, nil)
    return string.format("%d:%x", ffi.C.getpid(), tonumber(cast("uintptr_t", self.limiter)))
end

-- The limiter that limit:share told of. It must stay open; collecting this does not close it.
-- Returns the limiter; nil and the reason.
function stint.shared(words)
    local pid, address = words:match "^(%d+):(%x+)$"
    if not pid then
        return nil, "'" .. words .. "' is not of limit:share"
    elseif tonumber(pid) ~= ffi.C.getpid() then
        return nil, "that limiter is process " .. pid .. "'s, and this is another"
    end
    return handle(cast(limiter_p, cast("uintptr_t", tonumber(address, 16))))
end

-- Closes it now. Nobody may use it any more, by stint.shared neither.
function limit:close()
    local limiter = ffi.gc(self.limiter, nil)
    self.limiter = nil
    setmetatable(self, closed)
    C.stint_close(limiter)
end

-- ---- Policies -----------------------------------------------------------------------------------

-- Reads a policy into policy_buffer. Returns 0 or the error.
local function parse(text)
    policy_buffer.size = ffi.sizeof(policy_buffer)
    return C.stint_policy_parse(string_of(text, "a policy's text"), policy_buffer, nil)
end

-- What a function of C writes about policy_buffer; nil, the reason, the errno.
local function text_by(write)
    local length = write(policy_buffer, nil, 0)
    if length < 0 then
        return failure(length)
    end
    local text = buffer_t(length + 1)
    write(policy_buffer, text, length + 1)
    return str(text, length)
end

-- What a policy allows, but is hardly meant: a text for people, "" if there is nothing to say.
--   text  in the notation of stint_policy_parse
-- Returns it; nil, the reason, the errno.
function stint.note(text)
    local error = parse(text)
    if error ~= 0 then
        return failure(error)
    end
    return text_by(C.stint_policy_note)
end

-- Adds a policy, or finds the same one.
--   text  in the notation of stint_policy_parse
-- Returns its id; nil, the reason, the errno.
function limit:policy(text)
    local error = parse(text)
    if error == 0 then
        error = C.stint_policy_add(self.limiter, policy_buffer, id_out)
    end
    if error ~= 0 then
        return failure(error)
    end
    return id_out[0]
end

-- The id of the policy of that name; nil, the reason, the errno.
function limit:find(name)
    local error = C.stint_policy_find(self.limiter, string_of(name, "a policy's name"), id_out)
    if error ~= 0 then
        return failure(error)
    end
    self.ids[name] = id_out[0]
    return id_out[0]
end

-- The id of a policy that is given by id or by name. A name that was found once is not looked for
-- again, as its id leads to whatever replaces the policy. If another process removes the policy,
-- and adds one of that name, limit:find takes the new one.
local function id_of(self, policy)
    if type(policy) == "number" then
        return whole(policy, "a policy's id", UINT32_MAX)
    end
    local id = self.ids[policy]
    if id then
        return id
    end
    return self:find(policy)
end

-- Changes a policy at once, for all keys. Returns true; nil, the reason, the errno.
function limit:change(policy, text)
    local id, why, number = id_of(self, policy)
    if not id then
        return nil, why, number
    end
    local error = parse(text)
    if error == 0 then
        error = C.stint_policy_change(self.limiter, id, policy_buffer)
    end
    if error ~= 0 then
        return failure(error)
    end
    return true
end

-- Takes a policy away. Returns true; nil, the reason, the errno.
function limit:remove(policy)
    local id, why, number = id_of(self, policy)
    if not id then
        return nil, why, number
    end
    local error = C.stint_policy_remove(self.limiter, id)
    if error ~= 0 then
        return failure(error)
    end
    self.ids = {}
    return true
end

-- Makes the policies of the table those of a text, a policy a line.
--   how  nil, or a table: dry_run = true, prune = true
-- Returns true; nil, the reason, the errno.
function limit:apply(text, how)
    local flags = (how and how.dry_run and DRY_RUN or 0) + (how and how.prune and PRUNE or 0)
    local error = C.stint_policies_apply(self.limiter, string_of(text, "the text"), flags, nil, nil,
                                         nil)
    if error ~= 0 then
        return failure(error)
    end
    self.ids = {}
    return true
end

-- A policy in the text notation; nil, the reason, the errno.
function limit:text(policy)
    local id, why, number = id_of(self, policy)
    if not id then
        return nil, why, number
    end
    policy_buffer.size = ffi.sizeof(policy_buffer)
    local error = C.stint_policy_get(self.limiter, id, policy_buffer)
    if error ~= 0 then
        return failure(error)
    end
    return text_by(C.stint_policy_format)
end

-- What these methods return is put into a local first. LuaJIT compiles no function that ends in a
-- call of C whose result is a bool, and no call of C at the end of a function that C calls.

-- ---- Keys ---------------------------------------------------------------------------------------

-- What the methods below call `key` is a string of any bytes, or what one of these returns.
local function key_of(self, key)
    if type(key) == "string" then
        local made = C.stint_key_of(self.limiter, key, #key)
        return made
    elseif not ffi.istype(uint64_t, key) then
        error("a key is a string, or what limit:key, key_of_id or address returned, not "
            .. tostring(key), 3)
    end
    return key
end

-- A key of one string, or of several that stay apart: a user, then an endpoint.
function limit:key(first, ...)
    local key = C.stint_key_of(self.limiter, first, #first)
    for i = 1, select("#", ...) do
        local part = select(i, ...)
        key = C.stint_key_join(self.limiter, key, part, #part)
    end
    return key
end

-- A key of a number: a user's id. It is another key than that of a string of its digits.
--   id  a whole number up to 2^53, or LuaJIT's uint64_t
function limit:key_of_id(id)
    if not ffi.istype(uint64_t, id) then
        whole(id, "id", 2^53)
    end
    local key = C.stint_key_of_id(self.limiter, id)
    return key
end

-- A key of a client's address.
--   bytes    4 or 16 bytes in network order, such as nginx's $binary_remote_addr; all others are
--            one key
--   prefix4  bits of an IPv4 address; nil: 32
--   prefix6  bits of an IPv6 address; nil: 64
function limit:address(bytes, prefix4, prefix6)
    return self:address_at(bytes, #bytes, prefix4, prefix6)
end

-- The same of [bytes, bytes+size), a pointer.
function limit:address_at(bytes, size, prefix4, prefix6)
    local address
    prefix4 = prefix4 == nil and 32 or whole(prefix4, "prefix4", 32)
    prefix6 = prefix6 == nil and 64 or whole(prefix6, "prefix6", 128)
    whole(size, "size", UINT32_MAX)
    if size == 4 then
        copy(address4.bytes, bytes, 4)
        address = cast(sockaddr_p, address4)
    elseif size == 16 then
        copy(address6.bytes, bytes, 16)
        address = cast(sockaddr_p, address6)
    else
        address = cast(sockaddr_p, address_other)
    end
    local key = C.stint_key_address(self.limiter, address, prefix4, prefix6)
    return key
end

-- ---- Deciding -----------------------------------------------------------------------------------

-- Takes tokens of a key if they are left in its present window.
--   policy   its id, or its name
--   cost     tokens; nil: 1
--   verdict  receives the verdict; nil: the limiter's own, which its next decision overwrites
--   now      ns since the epoch, by limit:now(), within 60 s; nil: the limiter reads its clock
-- Returns whether the request is allowed, and the verdict; nil and the reason if there is no policy
-- of that name. Cost: no memory is allocated once LuaJIT has compiled the caller.
function limit:take(policy, key, cost, verdict, now)
    local id, why = id_of(self, policy)
    if not id then
        return nil, why
    end
    cost = cost == nil and 1 or whole(cost, "cost", UINT32_MAX)
    verdict = verdict or self.verdict
    return C.stint_take(self.limiter, id, key_of(self, key), cost, time_of(now), verdict), verdict
end

-- limit:take without a verdict. Returns whether the request is allowed; nil and the reason.
function limit:allows(policy, key, cost, now)
    local id, why = id_of(self, policy)
    if not id then
        return nil, why
    end
    cost = cost == nil and 1 or whole(cost, "cost", UINT32_MAX)
    local allowed = C.stint_take(self.limiter, id, key_of(self, key), cost, time_of(now), nil)
    return allowed
end

-- Nothing is written before all is found good: what fails leaves the request as it was.
local function fill(self, request, policy, key, cost, flags, own_limit, own_burst)
    key = key_of(self, key)
    cost = cost == nil and 1 or whole(cost, "cost", UINT32_MAX)
    flags = flags == nil and 0 or whole(flags, "flags", UINT32_MAX)
    own_limit = own_limit == nil and 0 or whole(own_limit, "own_limit", UINT32_MAX)
    own_burst = own_burst == nil and 0 or whole(own_burst, "own_burst", UINT32_MAX)
    request.policy, request.key, request.cost = policy, key, cost
    request.flags, request.limit, request.burst = flags, own_limit, own_burst
end

-- limit:take with all options.
--   flags      stint.PEEK, PARTIAL, DRAIN, RESERVE, CHARGE, TENTATIVE; nil: none
--   own_limit  this call's own in place of the policy's; nil: the policy's
--   own_burst  tokens of a bucket that may be used after this call; nil: all that the policy allows
function limit:decide(policy, key, cost, flags, own_limit, own_burst, verdict, now)
    local id, why = id_of(self, policy)
    if not id then
        return nil, why
    end
    verdict = verdict or self.verdict
    fill(self, self.request, id, key, cost, flags, own_limit, own_burst)
    return C.stint_decide(self.limiter, self.request, time_of(now), verdict), verdict
end

-- Says whether limit:decide could decide this, and why not. Arguments as for limit:decide.
-- Returns true; nil, the reason, the errno.
function limit:check(policy, key, cost, flags, own_limit, own_burst)
    local id, why, number = id_of(self, policy)
    if not id then
        return nil, why, number
    end
    fill(self, self.request, id, key, cost, flags, own_limit, own_burst)
    local error = C.stint_request_check(self.limiter, self.request)
    if error ~= 0 then
        return failure(error)
    end
    return true
end

-- Looks whether a request would be allowed. Takes nothing, counts nothing.
function limit:peek(policy, key, cost)
    return self:decide(policy, key, cost, stint.PEEK)
end

-- Takes the whole cost, whatever is left: for costs that are known only after the work.
function limit:charge(policy, key, cost)
    return self:decide(policy, key, cost, stint.CHARGE)
end

-- Gives back tokens for work that was not done.
--   verdict  of the take: what is given back is taken off its `granted`
--   tokens   nil: all that it was granted
-- Returns the tokens given back.
function limit:refund(key, verdict, tokens)
    if not ffi.istype(verdict_t, verdict) then
        error("limit:refund takes a key and the verdict of its take, not " .. tostring(verdict), 2)
    end
    tokens = tokens == nil and UINT32_MAX or whole(tokens, "tokens", UINT32_MAX)
    local given = C.stint_refund(self.limiter, key_of(self, key), verdict, tokens)
    return given
end

-- Makes a key as good as new. Returns whether there was anything to forget; nil and the reason.
function limit:reset(policy, key)
    local id, why = id_of(self, policy)
    if not id then
        return nil, why
    end
    local had = C.stint_reset(self.limiter, id, key_of(self, key))
    return had
end

-- Gives a key another limit for a while: 0 refuses everything, 2^28 nothing.
--   policy   one with `overrides`, or with `ban=`
--   seconds  from now, at most 366 days
-- Returns true; nil, the reason, the errno.
function limit:override(policy, key, tokens, seconds)
    local id, why, number = id_of(self, policy)
    if not id then
        return nil, why, number
    end
    whole(tokens, "tokens", UINT32_MAX)
    if type(seconds) ~= "number" or not (seconds >= 0 and seconds <= 2^32) then
        error("seconds is a number from 0 to 2^32, not " .. tostring(seconds), 2)
    end
    local error = C.stint_override(self.limiter, id, key_of(self, key), tokens,
                                   C.stint_now(self.limiter) + seconds * 1e9)
    if error ~= 0 then
        return failure(error)
    end
    return true
end

-- The key's override, or its ban, which has limit 0.
-- Returns the limit, and the seconds that are left; nil, the reason, the errno.
function limit:overridden(policy, key)
    local id, why, number = id_of(self, policy)
    if not id then
        return nil, why, number
    end
    local error = C.stint_override_get(self.limiter, id, key_of(self, key), id_out, until_out)
    if error ~= 0 then
        return failure(error)
    end
    return id_out[0], tonumber(cast("int64_t", until_out[0] - C.stint_now(self.limiter))) / 1e9
end

-- Ends a key's override, or its ban, now. Returns true; nil, the reason, the errno.
function limit:clear(policy, key)
    local id, why, number = id_of(self, policy)
    if not id then
        return nil, why, number
    end
    local error = C.stint_override_clear(self.limiter, id, key_of(self, key))
    if error ~= 0 then
        return failure(error)
    end
    return true
end

-- The limiter's clock: ns since the epoch, for `now`.
function limit:now()
    return C.stint_now(self.limiter)
end

-- Leaves a key's name for those who look at the table. Returns true; nil, the reason, the errno.
function limit:label(key, name)
    local error = C.stint_label(self.limiter, key_of(self, key), name, #name)
    if error ~= 0 then
        return failure(error)
    end
    return true
end

-- ---- Several requests ---------------------------------------------------------------------------

local group = {} -- methods
group.__index = group

-- Room for n requests, which are set, decided, and set anew: no memory is allocated for each.
function limit:group(n)
    whole(n, "n", UINT32_MAX)
    return setmetatable({limit = self, n = n, requests = requests_t(n), verdicts = verdicts_t(n),
                         ids = ids_t(n)}, group)
end

local function place(self, i)
    if type(i) ~= "number" or not (i >= 1 and i <= self.n) or floor(i) ~= i then
        error("the group has " .. self.n .. " requests, and no " .. tostring(i), 3)
    end
    return i - 1
end

-- Sets request i (from 1). Arguments as for limit:decide.
-- Returns the group; nil and the reason, and the request is as it was.
function group:set(i, policy, key, cost, flags, own_limit, own_burst)
    local at = place(self, i)
    local id, why = id_of(self.limit, policy)
    if not id then
        return nil, why
    end
    fill(self.limit, self.requests[at], id, key, cost, flags, own_limit, own_burst)
    self.ids[at] = id
    return self
end

-- The verdict of request i, until the group decides again.
function group:verdict(i)
    return self.verdicts[place(self, i)]
end

-- Decides all as one: all take their tokens, or none does. Two of one key by one policy make all
-- bad requests (BAD_REQUEST): add their costs. Returns whether all were allowed.
function group:decide_all(now)
    local allowed = C.stint_decide_all(self.limit.limiter, self.requests, self.n, time_of(now),
                                       self.verdicts)
    return allowed
end

-- Decides each by itself. Returns how many were allowed.
function group:decide_each(now)
    return tonumber(C.stint_decide_batch(self.limit.limiter, self.requests, self.n, time_of(now),
                                         self.verdicts))
end

-- Gives back all that the last decision took. Returns the tokens given back.
function group:refund()
    return tonumber(C.stint_refund_all(self.limit.limiter, self.requests, self.verdicts, self.n))
end

-- Decides a list of requests as one (group:decide_all).
--   requests  each {policy, key, cost, flags, own_limit, own_burst}
-- Returns whether all were allowed, and the group, which the next list of that length overwrites,
-- even one that fails; nil and the reason.
function limit:decide_all(requests, now)
    local n = #requests
    local all = self.groups[n]
    if not all then
        all = self:group(n)
        self.groups[n] = all
    end
    for i = 1, n do
        local one = requests[i]
        local set, why = all:set(i, one[1], one[2], one[3], one[4], one[5], one[6])
        if not set then
            return nil, why
        end
    end
    return all:decide_all(now), all
end

-- ---- Telling ------------------------------------------------------------------------------------

local function fields(self, style, verdicts, n)
    local number = STYLES[style or "draft"]
    if not number then
        error('the style is "draft", "legacy", "both" or "none", not ' .. tostring(style), 3)
    end
    local length = C.stint_headers(self.limiter, number, verdicts, n, nil, 0)
    if length < 0 then
        return failure(length)
    end
    local text = buffer_t(length + 1)
    C.stint_headers(self.limiter, number, verdicts, n, text, length + 1)
    local found = {}
    for name, value in str(text, length):gmatch "([^:\r\n]+): ([^\r\n]*)\r\n" do
        found[name] = value
    end
    return found
end

-- The fields of a response that tell of a verdict: values by name.
--   style  "draft" (RateLimit), "legacy" (X-RateLimit), "both", "none" (Retry-After alone); nil:
--          "draft"
-- Returns a table; nil, the reason, the errno.
function limit:headers(verdict, style)
    return fields(self, style, verdict, 1)
end

-- The same of all verdicts of the group.
function group:headers(style)
    return fields(self.limit, style, self.verdicts, self.n)
end

local STATS = {"memory", "slots", "used", "live", "placed", "untracked", "replaced", "clock_steps",
               "stray_tokens", "unknown_policy", "resets", "shards", "policies", "bad_requests",
               "processes", "overrides", "barred", "banned",
               "max_entries", "labels", "used_labels", "max_policies", "policy_ids", "gone_ids",
               "reach", "max_reach", "lost", "removed"}
local POLICY_STATS = {"allowed", "refused", "shadowed", "first_refusals", "untracked", "near_limit",
                      "charged", "refunded", "bans", "strikes_lost",
                      "refunds_lost", "mistaken_nows"}

local function numbers(from, names)
    local to = {}
    for _, name in ipairs(names) do
        to[name] = tonumber(from[name])
    end
    return to
end

-- The counts of the table, by the names of struct stint_stats; of one policy, if it is given, by
-- those of struct stint_policy_stats. Returns a table; nil, the reason, the errno.
function limit:stats(policy)
    local error
    if policy == nil then
        local stats = new "struct stint_stats"
        stats.size = ffi.sizeof(stats)
        error = C.stint_stats_get(self.limiter, stats)
        if error == 0 then
            return numbers(stats, STATS)
        end
        return failure(error)
    end
    local id, why, number = id_of(self, policy)
    if not id then
        return nil, why, number
    end
    local stats = new "struct stint_policy_stats"
    stats.size = ffi.sizeof(stats)
    error = C.stint_policy_stats_get(self.limiter, id, stats)
    if error == 0 then
        return numbers(stats, POLICY_STATS)
    end
    return failure(error)
end

-- All counts in the OpenMetrics text format.
--   how  nil, or a table: labels = {table = "logins"}, no_eof = true, no_scan = true
-- Returns the text; nil, the reason, the errno.
function limit:metrics(how)
    how = how or {}
    local options = new "struct stint_metrics_options"
    options.size = ffi.sizeof(options)
    options.flags = (how.no_eof and METRICS_NO_EOF or 0) + (how.no_scan and METRICS_NO_SCAN or 0)
    local words = {}
    for name, value in pairs(how.labels or {}) do
        words[#words + 1] = string_of(name, "a label's name")
        words[#words + 1] = string_of(value, "a label's value")
    end
    local room, length = 0
    repeat
        local text = buffer_t(room)
        -- Made last, so that nothing is collected before the call. What no word is for is not 0.
        local labels = new("const char *[?]", #words + 1, words)
        labels[#words] = nil
        options.labels = #words > 0 and labels or nil
        length = C.stint_metrics(self.limiter, options, text, room)
        if length >= 0 and length < room then
            return str(text, length)
        end
        room = length + 1
    until length < 0 -- the counts may have grown since they were measured
    return failure(length)
end

-- "MAJOR.MINOR.PATCH" of the library that is running.
function stint.version()
    return str(C.stint_version())
end

return stint
