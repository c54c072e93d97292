-- Wireshark's and tshark's reader of Isocast's packets, version 6 (docs/reference/wire.md).
--
--   tshark -X lua_script:tools/wireshark/isocast.lua -i lo -Y isocast
--
-- A packet is known by its first three bytes wherever it comes (heuristics), and on the ports of the preference
-- isocast.ports whatever its first bytes are. Tags are shown, not judged: keys have no place in a capture.

local isocast = Proto("isocast", "Isocast reliable multicast")

local MAGIC, VERSION = 0x4943, 6 -- The letters IC, as they travel.
local HEADER_BYTES, TAG_BYTES, EVENT_BYTES, DIGEST_BYTES, NONCE_BYTES, SIGNATURE_BYTES = 28, 16, 48, 32, 16, 72
local FIRST_SERVER, FIRST_OTHER = 65536, 131072

local KINDS = {
    [1] = "DATA", [2] = "TOKEN", [3] = "TOKENPART", [4] = "RECEIPT", [5] = "NACK", [6] = "REPAIR", [7] = "PENDING",
    [8] = "STANDING", [9] = "SUSPECT", [10] = "INVITE", [11] = "REFUSE", [12] = "JOIN", [13] = "NEWRING",
    [14] = "SECTOKEN", [15] = "REL", [16] = "RXREQ", [17] = "RXREP",
    [18] = "LINEASK", [19] = "LINEACK", [20] = "LINES", [21] = "PROOF", [22] = "DISCLOSE", [24] = "SRCCHAIN",
}
local REASONS = {
    [1] = "unrecovered", [2] = "no-receipts", [3] = "behind", [4] = "late", [5] = "clock", [6] = "sealed",
    [7] = "outside", [8] = "lost", [9] = "stranded", [10] = "leaving",
}
local CONTROLS = { [1] = "add site", [2] = "remove site", [3] = "stripe plan", [4] = "mark", [5] = "force universe",
    [6] = "roster" }
local UNITS = { [1] = "tokens", [2] = "sequences", [3] = "heads" }
local SERVICES = { [1] = "base", [2] = "repair" }
local SEALED = 0x8000
local EVENTS = {
    [1] = "TRADE", [2] = "QUOTE", [3] = "ORDER", [4] = "CANCEL", [5] = "REPLACE", [6] = "EXECUTION",
    [7] = "CORRECTION", [8] = "TRADE_CANCEL", [9] = "STATUS", [10] = "DIRECTORY", [11] = "MARK",
}
local SIDES = { [0] = "none", [1] = "buy", [2] = "sell" }
local STATUSES = { [1] = "closed", [2] = "halted", [3] = "paused", [4] = "quoting", [5] = "trading" }
local STATUS = 9
local FLAGS = { [12] = { "leaving" }, [13] = { "uncertified", "forced" }, [15] = { "uncertified" }, [19] = { "settled" } }
local REPAIRED = { [1] = true, [2] = true, [3] = true }

-- ---- fields

local field = {}
local listed = {}

local function declare(name, kind, text, ...)
    local made = kind("isocast." .. name, text, ...)
    field[name] = made
    listed[#listed + 1] = made
end

local u8, u16, u32, u64 = ProtoField.uint8, ProtoField.uint16, ProtoField.uint32, ProtoField.uint64
local i64, bytes, text, group, flag =
    ProtoField.int64, ProtoField.bytes, ProtoField.string, ProtoField.none, ProtoField.bool

declare("magic", text, "Magic")
declare("version", u8, "Version")
declare("kind", u8, "Kind", base.DEC, KINDS)
declare("market", u32, "Market", base.HEX)
declare("stripe", u16, "Stripe")
declare("flags", u16, "Flags", base.HEX)
declare("flags.leaving", flag, "Leaving", 16, nil, 0x1)
declare("flags.uncertified", flag, "Uncertified", 16, nil, 0x1)
declare("flags.forced", flag, "Forced", 16, nil, 0x2)
declare("flags.settled", flag, "Settled", 16, nil, 0x1)
declare("epoch.number", u32, "Epoch: number")
declare("epoch.server", u32, "Epoch: server")
declare("sender", u64, "Sender")
declare("tag", bytes, "Tag")
declare("payload", bytes, "Payload")

declare("lines.version.ballot.number", u32, "Version: ballot number")
declare("lines.version.ballot.server", u32, "Version: ballot server")
declare("lines.version.revision", u32, "Version: revision")
declare("lines.version.author", u32, "Version: author")
declare("lines.held.ballot.number", u32, "Version held: ballot number")
declare("lines.held.ballot.server", u32, "Version held: ballot server")
declare("lines.held.revision", u32, "Version held: revision")
declare("lines.held.author", u32, "Version held: author")
declare("lines.made_at", i64, "Made at")
declare("lines.first_group", u32, "First group")
declare("lines.stripes", u16, "Groups of an address")
declare("lines.scopes", u16, "Scopes")
declare("lines.rests", u16, "Addresses that rest")
for _, name in ipairs({ "scope", "rest" }) do
    declare(name, group, name == "scope" and "Scope" or "Address that rests")
    declare(name .. ".site", u32, "Site")
    declare(name .. ".latitude", ProtoField.double, "Latitude")
    declare(name .. ".longitude", ProtoField.double, "Longitude")
    declare(name .. ".radius_m", u32, "Radius in metres")
    declare(name .. ".settled_m", u32, "Radius that it was planned with")
    declare(name .. ".address", u16, "Address")
end
declare("rest.free_at", i64, "Free at")

declare("signature", group, "Signature")
declare("signature.serial", u64, "Roster's serial")
declare("signature.bytes", bytes, "Signature")

declare("data.number", u64, "Number")
declare("data.base", u64, "Base")

declare("token.epoch.number", u32, "Epoch: number")
declare("token.epoch.server", u32, "Epoch: server")
declare("token.sender", u64, "Sender")
declare("token.number", u64, "Token number")
declare("token.instant", i64, "Instant")
declare("token.first_sequence", u64, "First sequence")
declare("token.stable", u64, "Stable")
declare("token.secstable", u64, "Stable in the secondary groups")
declare("token.commit", bytes, "Commit")
declare("token.reveal", bytes, "Reveal")
declare("token.prev_digest", bytes, "Digest of the token before")
declare("token.runs", u16, "Runs")
declare("token.steps", u16, "Steps")
declare("token.grants", u16, "Grants")
declare("token.controls", u8, "Control entries")
declare("token.flags", u8, "Flags of the token", base.HEX)
declare("token.flags.wide", flag, "Steps are wide", 8, nil, 0x1)
declare("token.flags.discloses", flag, "Disclosures follow", 8, nil, 0x2)
declare("token.disclosures", u16, "Disclosures")
declare("run", group, "Run")
declare("run.source", u64, "Source")
declare("run.first", u64, "First number")
declare("run.count", u32, "Count")
declare("run.digest", bytes, "Digest")
declare("step", group, "Step")
declare("step.run", u16, "Run")
declare("step.count", u16, "How many")
declare("grant", group, "Grant")
declare("grant.source", u64, "Source")
declare("grant.window", u32, "Window")
declare("control", group, "Control entry")
declare("control.kind", u16, "Kind", base.DEC, CONTROLS)
declare("control.length", u16, "Length")
declare("control.subject", u64, "Subject")
declare("control.body", bytes, "Body")
declare("control.site", u32, "Site")

declare("disclosure", group, "Disclosure")
declare("disclosure.source", u64, "Source")
declare("disclosure.number", u64, "Number")
declare("disclosure.link", bytes, "Link")

declare("part.token", u64, "Token number")
declare("part.part", u16, "Part")
declare("part.parts", u16, "Parts")
declare("part.body", bytes, "Piece of the token's body")

declare("chain.since", u64, "Signed for before")
declare("chain.before", bytes, "Chain behind it")
declare("chain.number", u64, "Last message signed for")
declare("chain.digest", bytes, "Chain behind that one")
declare("receipt.held", u64, "Last token held")
declare("receipt.digest", bytes, "Its digest")

declare("nack.token", u64, "Token number")
declare("nack.flags", u16, "Flags of the request", base.HEX)
declare("nack.flags.has_token", flag, "The sender has the token", 16, nil, 0x1)
declare("nack.parts_bytes", u16, "Bytes of the map of parts")
declare("nack.holdings", u16, "Holdings")
declare("nack.parts", bytes, "Map of parts that arrived")
declare("nack.part", u16, "Part that arrived")
declare("holding", group, "Holding")
declare("holding.source", u64, "Source")
declare("holding.first", u64, "First number")
declare("holding.bytes", u16, "Bytes of the bitmap")
declare("holding.bitmap", bytes, "Bitmap")
declare("holding.number", u64, "Number")

declare("repair.item", group, "Packet again")
declare("pending.token", u64, "Token number")

declare("standing.source", u64, "Source")
declare("standing.next_number", u64, "Next number")
declare("standing.token", u64, "At or before token")

declare("suspect.token", u64, "Token number")
declare("suspect.suspect", u64, "Suspected")
declare("suspect.reason", u16, "Reason", base.DEC, REASONS)
declare("suspect.promised.number", u32, "Promised ballot: number")
declare("suspect.promised.server", u32, "Promised ballot: server")

declare("ballot.number", u32, "Ballot: number")
declare("ballot.server", u32, "Ballot: server")
declare("refuse.promised.number", u32, "Promised ballot: number")
declare("refuse.promised.server", u32, "Promised ballot: server")
declare("refuse.held", u64, "Last token held")

declare("join.held", u64, "Last token held")
declare("join.digest", bytes, "Its digest")
declare("join.instant", i64, "Its instant")
declare("join.next_sequence", u64, "Next sequence")
declare("join.now", i64, "The sender's clock")
declare("join.commit", bytes, "Commit")
declare("join.heard_count", u16, "Sites heard")
declare("join.universe_count", u16, "Sites of U")
declare("join.next_count", u16, "Next numbers")
declare("heard", u32, "Site heard")
declare("universe", u32, "Site of U")
declare("next", group, "Next number")
declare("next.source", u64, "Source")
declare("next.number", u64, "Number")

declare("ring.first_token", u64, "First token")
declare("ring.first_sequence", u64, "First sequence")
declare("ring.start", i64, "Start")
declare("ring.cut.number", u32, "Cut: epoch number")
declare("ring.cut.server", u32, "Cut: epoch server")
declare("ring.cut.token", u64, "Cut: token")
declare("ring.cut.digest", bytes, "Cut: digest")
declare("ring.members", u16, "Members")
declare("ring.holders", u16, "Holders of the cut")
declare("ring.universe_count", u16, "Sites of U")
declare("ring.next_count", u16, "Next numbers")
declare("ring.vote_count", u16, "Votes")
declare("ring.member", u32, "Member")
declare("ring.commit", bytes, "Commit of a member")
declare("ring.holder", u32, "Holder")
declare("vote", group, "Vote")
declare("vote.site", u32, "Site")
declare("vote.epoch.number", u32, "Epoch: number")
declare("vote.epoch.server", u32, "Epoch: server")
declare("vote.held", u64, "Last token held")
declare("vote.digest", bytes, "Its digest")
declare("vote.rest", bytes, "Digest of the rest")

declare("sectoken.group", u32, "Group")
declare("sectoken.token", u64, "Token number")

declare("rel.token", u64, "Token number")
declare("rel.sequence", u64, "Sequence")
declare("rel.instant", i64, "Instant")
declare("rel.number", u64, "Number on the edge stripe")
declare("rel.edge_stripe", u32, "Edge stripe")
declare("rel.count", u32, "Count")
declare("rel.payload_bytes", u16, "Bytes of the payload")
declare("rel.proof_bytes", u16, "Bytes of the proof")
declare("rel.shuffle_key", bytes, "Shuffle key of the token")
declare("rel.passed", i64, "Released whole up to")
declare("rel.proof", bytes, "Proof")

declare("proof.token", u64, "Token number")
declare("proof.instant", i64, "Instant")
declare("proof.first", u64, "First number")
declare("proof.edge_stripe", u32, "Edge stripe")
declare("proof.version", u32, "Version of the stripe plan")
declare("proof.part", u16, "Part")
declare("proof.parts", u16, "Parts")
declare("proof.salt", bytes, "Salt")
declare("proof.digest", bytes, "Digest")

declare("sealed.service", u8, "Service", base.DEC, SERVICES)
declare("sealed.period", u32, "Period")
declare("sealed.nonce", bytes, "Nonce")
declare("sealed.body", bytes, "Sealed body")

declare("range.unit", u16, "Unit", base.DEC, UNITS)
declare("range.first", u64, "First")
declare("range.last", u64, "Last")
declare("range.low_water", u64, "Lowest that is kept")

declare("event", group, "Event")
declare("event.kind", u8, "Kind", base.DEC, EVENTS)
declare("event.side", u8, "Side", base.DEC, SIDES)
declare("event.flags", u16, "Flags", base.HEX)
declare("event.flags.linked", flag, "Linked with the next", 16, nil, 0x1)
declare("event.flags.market", flag, "At any price", 16, nil, 0x2)
declare("event.flags.immediate", flag, "Immediate or not at all", 16, nil, 0x4)
declare("event.flags.auction", flag, "Auction", 16, nil, 0x8)
declare("event.flags.unprinted", flag, "Unprinted", 16, nil, 0x10)
declare("event.flags.tentative", flag, "Tentative", 16, nil, 0x20)
declare("event.flags.copied", flag, "Copied", 16, nil, 0x40)
declare("event.flags.not_last", flag, "Not last", 16, nil, 0x100)
declare("event.flags.not_high_low", flag, "Neither high nor low", 16, nil, 0x200)
declare("event.flags.opening", flag, "Opening", 16, nil, 0x400)
declare("event.flags.closing", flag, "Closing", 16, nil, 0x800)
declare("event.flags.extended", flag, "Extended hours", 16, nil, 0x1000)
declare("event.flags.odd_lot", flag, "Odd lot", 16, nil, 0x2000)
declare("event.flags.late", flag, "Late", 16, nil, 0x4000)
declare("event.floor", text, "Floor")
declare("event.symbol", text, "Symbol")
declare("event.price", i64, "Price in ticks")
declare("event.quantity", u32, "Quantity")
declare("event.reference", u32, "Reference")
declare("event.time", u64, "Time")
declare("event.id", u64, "Id")

isocast.fields = listed

local malformed = ProtoExpert.new(
    "isocast.malformed", "Malformed packet", expert.group.MALFORMED, expert.severity.ERROR)
local unknown = ProtoExpert.new(
    "isocast.unknown", "Something that this version does not know", expert.group.PROTOCOL, expert.severity.WARN)
isocast.experts = { malformed, unknown }

isocast.prefs.ports = Pref.range("UDP ports", "", "Ports on which everything is Isocast; others are recognised", 65535)
isocast.prefs.events = Pref.bool(
    "Show events of payloads", true, "Read payloads in the clear as rows of 48 bytes; sealed ones stay bytes")

-- ---- reading: a cursor that never passes its end

local Cursor = {}
Cursor.__index = Cursor

local function cursor(range)
    return setmetatable({ range = range, at = 0, size = range:len() }, Cursor)
end

function Cursor:left()
    return self.size - self.at
end

function Cursor:take(count)
    if count > self:left() then
        error({ why = string.format("%d bytes are wanted, %d are left", count, self:left()) })
    end
    local taken = self.range:range(self.at, count)
    self.at = self.at + count
    return taken
end

-- One little-endian integer; its item, and its range for whoever needs the value.
function Cursor:add(tree, name, width)
    local taken = self:take(width)
    return tree:add_le(field[name], taken), taken
end

function Cursor:bytes(tree, name, count)
    local taken = self:take(count)
    return tree:add(field[name], taken), taken
end

-- ---- what people want to see beside a number

local function node_text(high, low)
    if high > 0 then
        return low == 1 and string.format("source %d", high) or string.format("source %d, incarnation %d", high, low)
    elseif low >= FIRST_OTHER then
        return string.format("other %d", low - FIRST_OTHER)
    elseif low >= FIRST_SERVER then
        return string.format("server %d", low - FIRST_SERVER)
    end
    return string.format("site %d", low)
end

function Cursor:node(tree, name)
    local item, taken = self:add(tree, name, 8)
    local described = node_text(taken:range(4, 4):le_uint(), taken:range(0, 4):le_uint())
    item:append_text(" (" .. described .. ")")
    return described
end

function Cursor:epoch(tree, name)
    local _, number = self:add(tree, name .. ".number", 4)
    local item, server = self:add(tree, name .. ".server", 4)
    local id = server:le_uint()
    if id >= FIRST_SERVER then
        item:append_text(string.format(" (server %d)", id - FIRST_SERVER))
    end
    return string.format("%d.%d", number:le_uint(), math.max(id - FIRST_SERVER, 0))
end

function Cursor:instant(tree, name)
    local item, taken = self:add(tree, name, 8)
    local value = taken:le_int64()
    if value > Int64(0) then
        local seconds, rest = (value / Int64(1000000000)):tonumber(), (value % Int64(1000000000)):tonumber()
        item:append_text(string.format(" (%s.%09d UTC)", os.date("!%Y-%m-%d %H:%M:%S", seconds), rest))
    end
end

local function number_of(taken)
    return tostring(taken:le_uint64())
end

-- The numbers that a bitmap stands for, each as a field of its own.
local function add_bits(tree, name, taken, first)
    for place = 0, taken:len() - 1 do
        local value = taken:range(place, 1):uint()
        for bit = 0, 7 do
            if math.floor(value / 2 ^ bit) % 2 == 1 then
                local offset = place * 8 + bit
                local number = first and (first + UInt64(offset)) or offset
                tree:add(field[name], taken:range(place, 1), number):set_generated()
            end
        end
    end
end

-- ---- events

local function event_rows(payload)
    if not isocast.prefs.events or payload:len() == 0 or payload:len() % EVENT_BYTES ~= 0 then
        return false
    end
    for at = 0, payload:len() - 1, EVENT_BYTES do
        if not EVENTS[payload:range(at, 1):uint()] or not SIDES[payload:range(at + 1, 1):uint()]
            or payload:range(at + 2, 1):uint() >= 0x80 or payload:range(at + 3, 1):uint() >= 0x80 then
            return false
        end
    end
    return true
end

local EVENT_FLAGS = { "linked", "market", "immediate", "auction", "unprinted", "tentative", "copied",
    "not_last", "not_high_low", "opening", "closing", "extended", "odd_lot", "late" }

local function add_event(tree, row)
    local at = cursor(row)
    local item = tree:add(field["event"], row)
    local _, kind = at:add(item, "event.kind", 1)
    at:add(item, "event.side", 1)
    local flags_item, flags = at:add(item, "event.flags", 2)
    for _, name in ipairs(EVENT_FLAGS) do
        flags_item:add_le(field["event.flags." .. name], flags)
    end
    local floor = at:take(4)
    item:add(field["event.floor"], floor)
    local symbol = at:take(8)
    item:add(field["event.symbol"], symbol, symbol:stringz())
    local price_item, price = at:add(item, "event.price", 8)
    local ticks = price:le_int64():tonumber()
    price_item:append_text(string.format(" (%.4f)", ticks / 10000))
    local _, quantity = at:add(item, "event.quantity", 4)
    local reference_item, reference = at:add(item, "event.reference", 4)
    if kind:uint() == STATUS and STATUSES[reference:le_uint()] then
        reference_item:append_text(" (" .. STATUSES[reference:le_uint()] .. ")")
    end
    at:instant(item, "event.time")
    at:add(item, "event.id", 8)
    item:append_text(string.format(": %s %s %s %.4f x %d", EVENTS[kind:uint()], floor:string(), symbol:stringz(),
        ticks / 10000, quantity:le_uint()))
end

local function add_payload(tree, payload)
    local item = tree:add(field["payload"], payload)
    if event_rows(payload) then
        item:append_text(string.format(" (%d events)", payload:len() / EVENT_BYTES))
        for at = 0, payload:len() - 1, EVENT_BYTES do
            add_event(item, payload:range(at, EVENT_BYTES))
        end
    end
end

-- ---- bodies; each returns what the packet list says of it

local function sites(at, tree, name, count)
    for _ = 1, count do
        at:add(tree, name, 4)
    end
end

-- A list's element: the item that its fields go under. `size` may be more than there is; the fields will say so.
local function element(at, tree, name, size)
    if at:left() < 1 then
        error({ why = name .. " is missing" })
    end
    return tree:add(field[name], at.range:range(at.at, math.min(size, at:left())))
end

local function add_signature(at, tree)
    if at:left() == SIGNATURE_BYTES then
        local item = element(at, tree, "signature", SIGNATURE_BYTES)
        at:add(item, "signature.serial", 8)
        at:bytes(item, "signature.bytes", SIGNATURE_BYTES - 8)
    end
end

local function add_votes(at, tree, count)
    for _ = 1, count do
        local item = element(at, tree, "vote", 156)
        local _, site = at:add(item, "vote.site", 4)
        at:epoch(item, "vote.epoch")
        local _, held = at:add(item, "vote.held", 8)
        at:bytes(item, "vote.digest", DIGEST_BYTES)
        at:bytes(item, "vote.rest", DIGEST_BYTES)
        at:add(item, "signature.serial", 8)
        at:bytes(item, "signature.bytes", SIGNATURE_BYTES - 8)
        item:append_text(string.format(": site %d holds token %s", site:le_uint(), number_of(held)))
    end
end

local function next_numbers(at, tree, count)
    for _ = 1, count do
        local item = element(at, tree, "next", 16)
        local who = at:node(item, "next.source")
        local _, number = at:add(item, "next.number", 8)
        item:append_text(string.format(": %s from %s", who, number_of(number)))
    end
end

local function add_runs(at, tree, count)
    local messages = 0
    for _ = 1, count do
        local item = element(at, tree, "run", 52)
        local who = at:node(item, "run.source")
        local _, first = at:add(item, "run.first", 8)
        local _, many = at:add(item, "run.count", 4)
        at:bytes(item, "run.digest", DIGEST_BYTES)
        messages = messages + many:le_uint()
        item:append_text(string.format(": %d of %s from %s", many:le_uint(), who, number_of(first)))
    end
    return messages
end

local function add_steps(at, tree, count, width)
    for _ = 1, count do
        local item = element(at, tree, "step", 2 * width)
        local _, run = at:add(item, "step.run", width)
        local _, many = at:add(item, "step.count", width)
        item:append_text(string.format(": %d of run %d", many:le_uint(), run:le_uint()))
    end
end

local function add_control(at, tree)
    local item = element(at, tree, "control", 12)
    local _, kind = at:add(item, "control.kind", 2)
    local _, length = at:add(item, "control.length", 2)
    local _, subject = at:add(item, "control.subject", 8)
    local name = CONTROLS[kind:le_uint()]
    item:append_text(string.format(": %s %s", name or "unknown", number_of(subject)))
    if not name then
        item:add_proto_expert_info(unknown, "an unknown control entry")
    end
    local body = length:le_uint()
    if body > 0 then
        local _, taken = at:bytes(item, "control.body", body)
        if kind:le_uint() == 5 and body % 4 == 0 then
            for place = 0, body - 1, 4 do
                item:add_le(field["control.site"], taken:range(place, 4))
            end
        end
    end
end

local BODIES = {}

BODIES[1] = function(at, tree)
    local _, number = at:add(tree, "data.number", 8)
    at:add(tree, "data.base", 8)
    local size = at:left()
    if size > 0 then
        add_payload(tree, at:take(size))
    end
    return string.format("number %s, %d bytes", number_of(number), size)
end

BODIES[2] = function(at, tree)
    at:epoch(tree, "token.epoch")
    at:node(tree, "token.sender")
    local _, number = at:add(tree, "token.number", 8)
    at:instant(tree, "token.instant")
    local _, first = at:add(tree, "token.first_sequence", 8)
    at:add(tree, "token.stable", 8)
    local item, secstable = at:add(tree, "token.secstable", 8)
    if number_of(secstable) == "18446744073709551615" then
        item:append_text(" (no secondary groups)")
    end
    at:bytes(tree, "token.commit", NONCE_BYTES)
    at:bytes(tree, "token.reveal", NONCE_BYTES)
    at:bytes(tree, "token.prev_digest", DIGEST_BYTES)
    local _, runs = at:add(tree, "token.runs", 2)
    local _, steps = at:add(tree, "token.steps", 2)
    local _, grants = at:add(tree, "token.grants", 2)
    local _, controls = at:add(tree, "token.controls", 1)
    local flags_item, flags = at:add(tree, "token.flags", 1)
    flags_item:add(field["token.flags.wide"], flags)
    flags_item:add(field["token.flags.discloses"], flags)
    if flags:uint() > 3 then
        flags_item:add_proto_expert_info(unknown, "unknown flags of a token")
    end
    local messages = add_runs(at, tree, runs:le_uint())
    add_steps(at, tree, steps:le_uint(), flags:uint() % 2 == 1 and 2 or 1)
    for _ = 1, grants:le_uint() do
        local grant = element(at, tree, "grant", 12)
        local who = at:node(grant, "grant.source")
        local _, window = at:add(grant, "grant.window", 4)
        grant:append_text(string.format(": %d to %s", window:le_uint(), who))
    end
    for _ = 1, controls:uint() do
        add_control(at, tree)
    end
    if flags:uint() > 1 then
        local _, disclosures = at:add(tree, "token.disclosures", 2)
        for _ = 1, disclosures:le_uint() do
            local shown = element(at, tree, "disclosure", 48)
            local who = at:node(shown, "disclosure.source")
            local _, which = at:add(shown, "disclosure.number", 8)
            at:bytes(shown, "disclosure.link", DIGEST_BYTES)
            shown:append_text(string.format(": %s of %s", number_of(which), who))
        end
    end
    add_signature(at, tree)
    return string.format("token %s, %d messages from sequence %s", number_of(number), messages, number_of(first))
end

BODIES[3] = function(at, tree)
    local _, number = at:add(tree, "part.token", 8)
    local _, part = at:add(tree, "part.part", 2)
    local _, parts = at:add(tree, "part.parts", 2)
    at:bytes(tree, "part.body", math.max(at:left(), 1))
    return string.format("token %s, part %d of %d", number_of(number), part:le_uint() + 1, parts:le_uint())
end

BODIES[4] = function(at, tree)
    local _, held = at:add(tree, "receipt.held", 8)
    at:bytes(tree, "receipt.digest", DIGEST_BYTES)
    add_signature(at, tree)
    return "up to token " .. number_of(held)
end

BODIES[5] = function(at, tree)
    local _, number = at:add(tree, "nack.token", 8)
    local item, flags = at:add(tree, "nack.flags", 2)
    item:add_le(field["nack.flags.has_token"], flags)
    if flags:le_uint() > 1 then
        item:add_proto_expert_info(unknown, "unknown flags of a request")
    end
    local _, size = at:add(tree, "nack.parts_bytes", 2)
    local _, holdings = at:add(tree, "nack.holdings", 2)
    if size:le_uint() > 0 then
        local parts_item, parts = at:bytes(tree, "nack.parts", size:le_uint())
        add_bits(parts_item, "nack.part", parts, nil)
    end
    for _ = 1, holdings:le_uint() do
        local holding = element(at, tree, "holding", 18)
        local who = at:node(holding, "holding.source")
        local _, first = at:add(holding, "holding.first", 8)
        local _, width = at:add(holding, "holding.bytes", 2)
        if width:le_uint() > 0 then
            local map_item, map = at:bytes(holding, "holding.bitmap", width:le_uint())
            add_bits(map_item, "holding.number", map, first:le_uint64())
        end
        holding:append_text(string.format(": of %s from %s", who, number_of(first)))
    end
    local what = flags:le_uint() % 2 == 1 and "lacks messages of" or "lacks"
    return string.format("%s token %s, %d holdings", what, number_of(number), holdings:le_uint())
end

BODIES[7] = function(at, tree)
    local _, number = at:add(tree, "pending.token", 8)
    return "lacks token " .. number_of(number) .. " too"
end

BODIES[8] = function(at, tree)
    local who = at:node(tree, "standing.source")
    local _, number = at:add(tree, "standing.next_number", 8)
    at:add(tree, "standing.token", 8)
    return string.format("%s is acknowledged below %s", who, number_of(number))
end

BODIES[9] = function(at, tree)
    local _, number = at:add(tree, "suspect.token", 8)
    local who = at:node(tree, "suspect.suspect")
    local item, reason = at:add(tree, "suspect.reason", 2)
    at:epoch(tree, "suspect.promised")
    local name = REASONS[reason:le_uint()]
    if not name then
        item:add_proto_expert_info(unknown, "an unknown reason")
    end
    return string.format("%s at token %s: %s", who, number_of(number), name or "unknown")
end

BODIES[10] = function(at, tree)
    local ballot = at:epoch(tree, "ballot")
    add_signature(at, tree)
    return "ballot " .. ballot
end

BODIES[11] = function(at, tree)
    local ballot = at:epoch(tree, "ballot")
    local promised = at:epoch(tree, "refuse.promised")
    at:add(tree, "refuse.held", 8)
    return string.format("ballot %s, promised %s", ballot, promised)
end

BODIES[12] = function(at, tree)
    local ballot = at:epoch(tree, "ballot")
    local _, held = at:add(tree, "join.held", 8)
    at:bytes(tree, "join.digest", DIGEST_BYTES)
    at:instant(tree, "join.instant")
    at:add(tree, "join.next_sequence", 8)
    at:instant(tree, "join.now")
    at:bytes(tree, "join.commit", NONCE_BYTES)
    local _, heard = at:add(tree, "join.heard_count", 2)
    local _, universe = at:add(tree, "join.universe_count", 2)
    local _, numbers = at:add(tree, "join.next_count", 2)
    sites(at, tree, "heard", heard:le_uint())
    sites(at, tree, "universe", universe:le_uint())
    next_numbers(at, tree, numbers:le_uint())
    add_signature(at, tree)
    return string.format("ballot %s, holds token %s", ballot, number_of(held))
end

BODIES[13] = function(at, tree)
    local ballot = at:epoch(tree, "ballot")
    local _, first = at:add(tree, "ring.first_token", 8)
    at:add(tree, "ring.first_sequence", 8)
    at:instant(tree, "ring.start")
    at:epoch(tree, "ring.cut")
    at:add(tree, "ring.cut.token", 8)
    at:bytes(tree, "ring.cut.digest", DIGEST_BYTES)
    local _, members = at:add(tree, "ring.members", 2)
    local _, holders = at:add(tree, "ring.holders", 2)
    local _, universe = at:add(tree, "ring.universe_count", 2)
    local _, numbers = at:add(tree, "ring.next_count", 2)
    local _, votes = at:add(tree, "ring.vote_count", 2)
    sites(at, tree, "ring.member", members:le_uint())
    for _ = 1, members:le_uint() do
        at:bytes(tree, "ring.commit", NONCE_BYTES)
    end
    sites(at, tree, "ring.holder", holders:le_uint())
    sites(at, tree, "universe", universe:le_uint())
    next_numbers(at, tree, numbers:le_uint())
    add_votes(at, tree, votes:le_uint())
    add_signature(at, tree)
    return string.format("ballot %s, %d members from token %s", ballot, members:le_uint(), number_of(first))
end

BODIES[14] = function(at, tree)
    local _, head = at:add(tree, "sectoken.group", 4)
    local _, number = at:add(tree, "sectoken.token", 8)
    return string.format("group %d holds token %s", head:le_uint(), number_of(number))
end

BODIES[15] = function(at, tree)
    at:add(tree, "rel.token", 8)
    local _, sequence = at:add(tree, "rel.sequence", 8)
    at:instant(tree, "rel.instant")
    at:add(tree, "rel.number", 8)
    at:add(tree, "rel.edge_stripe", 4)
    local _, count = at:add(tree, "rel.count", 4)
    local _, payload = at:add(tree, "rel.payload_bytes", 2)
    local _, proof = at:add(tree, "rel.proof_bytes", 2)
    at:bytes(tree, "rel.shuffle_key", NONCE_BYTES)
    if count:le_uint() == 0 and payload:le_uint() == 8 then
        at:instant(tree, "rel.passed")
    elseif payload:le_uint() > 0 then
        add_payload(tree, at:take(payload:le_uint()))
    end
    if proof:le_uint() > 0 then
        at:bytes(tree, "rel.proof", proof:le_uint())
    end
    if count:le_uint() == 0 then
        return "heartbeat, next sequence " .. number_of(sequence)
    end
    return string.format("sequence %s, %d bytes", number_of(sequence), payload:le_uint())
end

local function range_fields(at, tree)
    local item, unit = at:add(tree, "range.unit", 2)
    local _, first = at:add(tree, "range.first", 8)
    local _, last = at:add(tree, "range.last", 8)
    if not UNITS[unit:le_uint()] then
        item:add_proto_expert_info(unknown, "an unknown unit")
    end
    return string.format("%s %s to %s", UNITS[unit:le_uint()] or "unknown", number_of(first), number_of(last))
end

BODIES[16] = range_fields

BODIES[17] = function(at, tree)
    local said = range_fields(at, tree)
    at:add(tree, "range.low_water", 8)
    return said
end

-- ---- plans of lines

local function version(at, tree, prefix)
    local ballot = at:epoch(tree, prefix .. ".ballot")
    local _, revision = at:add(tree, prefix .. ".revision", 4)
    at:add(tree, prefix .. ".author", 4)
    return string.format("%s/%d", ballot, revision:le_uint())
end

BODIES[18] = function(at, tree)
    local wanted = version(at, tree, "lines.version")
    return string.format("for plan %s, holds %s", wanted, version(at, tree, "lines.held"))
end

BODIES[19] = function(at, tree)
    local promised = version(at, tree, "lines.version")
    return string.format("promised plan %s, holds %s", promised, version(at, tree, "lines.held"))
end

local function placed(at, tree, name)
    local item = element(at, tree, name, name == "rest" and 38 or 30)
    local _, site = at:add(item, name .. ".site", 4)
    at:add(item, name .. ".latitude", 8)
    at:add(item, name .. ".longitude", 8)
    local _, radius = at:add(item, name .. ".radius_m", 4)
    at:add(item, name .. ".settled_m", 4)
    local _, address = at:add(item, name .. ".address", 2)
    if name == "rest" then
        at:instant(item, "rest.free_at")
    end
    item:append_text(string.format(": site %d, %d m, address %d", site:le_uint(), radius:le_uint(), address:le_uint()))
end

BODIES[20] = function(at, tree)
    local plan = version(at, tree, "lines.version")
    at:instant(tree, "lines.made_at")
    at:add(tree, "lines.first_group", 4)
    at:add(tree, "lines.stripes", 2)
    local _, scopes = at:add(tree, "lines.scopes", 2)
    local _, rests = at:add(tree, "lines.rests", 2)
    for _ = 1, scopes:le_uint() do
        placed(at, tree, "scope")
    end
    for _ = 1, rests:le_uint() do
        placed(at, tree, "rest")
    end
    return string.format("plan %s, %d scopes, %d addresses rest", plan, scopes:le_uint(), rests:le_uint())
end

BODIES[22] = function(at, tree)
    local count = 0
    while at:left() > 0 do
        local shown = element(at, tree, "disclosure", 40)
        local _, which = at:add(shown, "disclosure.number", 8)
        at:bytes(shown, "disclosure.link", DIGEST_BYTES)
        shown:append_text(": " .. number_of(which))
        count = count + 1
    end
    return string.format("%d links", count)
end

BODIES[21] = function(at, tree)
    local _, token = at:add(tree, "proof.token", 8)
    at:instant(tree, "proof.instant")
    local _, first = at:add(tree, "proof.first", 8)
    at:add(tree, "proof.edge_stripe", 4)
    at:add(tree, "proof.version", 4)
    at:add(tree, "proof.part", 2)
    at:add(tree, "proof.parts", 2)
    at:bytes(tree, "proof.salt", 16)
    local digests = 0
    while at:left() > SIGNATURE_BYTES do
        at:bytes(tree, "proof.digest", 16)
        digests = digests + 1
    end
    add_signature(at, tree)
    return string.format("token %s, %d digests from %s", number_of(token), digests, number_of(first))
end

BODIES[24] = function(at, tree)
    local _, since = at:add(tree, "chain.since", 8)
    at:bytes(tree, "chain.before", DIGEST_BYTES)
    local _, number = at:add(tree, "chain.number", 8)
    at:bytes(tree, "chain.digest", DIGEST_BYTES)
    add_signature(at, tree)
    return string.format("behind %s to %s", number_of(since), number_of(number))
end

-- A sealed line's packet: who it is for and when, and nothing of what it says.
local function sealed(at, tree)
    local _, service = at:add(tree, "sealed.service", 1)
    local _, period = at:add(tree, "sealed.period", 4)
    at:bytes(tree, "sealed.nonce", 12)
    local size = at:left()
    at:bytes(tree, "sealed.body", size)
    return string.format("sealed, %s, period %d, %d bytes", SERVICES[service:uint()] or "?", period:le_uint(), size)
end

-- ---- frames

local function add_flags(tree, taken, kind)
    local item = tree:add_le(field["flags"], taken)
    local names = FLAGS[kind] or {}
    for _, name in ipairs(names) do
        item:add_le(field["flags." .. name], taken)
    end
    if taken:le_uint() % SEALED >= 2 ^ #names then
        item:add_proto_expert_info(unknown, "flags that this kind does not have")
    end
    return taken:le_uint() >= SEALED
end

local frame

-- REPAIR: a complete frame of another kind, one level deep.
local function repair(at, tree, nested)
    if nested then
        error({ why = "a REPAIR within a REPAIR" })
    end
    local inside = at:take(at:left())
    local item = tree:add(field["repair.item"], inside)
    local kind, said = frame(inside, item, true)
    if kind and not REPAIRED[kind] then
        item:add_proto_expert_info(unknown, "this kind is not repaired")
    end
    item:append_text(": " .. said)
    return said
end

-- Everything of one frame into the tree; its kind, if it is ours, and what the packet list says.
frame = function(range, tree, nested)
    local at = cursor(range)
    local kind
    local ok, said = pcall(function()
        local magic = at:take(2)
        tree:add(field["magic"], magic)
        local _, version = at:add(tree, "version", 1)
        if magic:uint() ~= MAGIC or version:uint() ~= VERSION then
            error({ why = "magic or version is not that of this reader" })
        end
        local _, code = at:add(tree, "kind", 1)
        kind = code:uint()
        tree:add(field["market"], at:take(4))
        local _, stripe = at:add(tree, "stripe", 2)
        local is_sealed = add_flags(tree, at:take(2), kind)
        local epoch = at:epoch(tree, "epoch")
        local sender = at:node(tree, "sender")
        local name = KINDS[kind]
        if not name then
            error({ why = string.format("kind %d is unknown", kind) })
        end
        if at:left() < TAG_BYTES then
            error({ why = "shorter than header and tag" })
        end
        local body = cursor(range:range(HEADER_BYTES, math.max(at:left() - TAG_BYTES, 0)))
        local told
        if is_sealed and (kind == 15 or kind == 21) then
            told = sealed(body, tree)
        elseif kind == 6 then
            told = repair(body, tree, nested)
        else
            told = BODIES[kind](body, tree)
        end
        if body:left() > 0 then
            error({ why = string.format("%d bytes are left over", body:left()) })
        end
        tree:add(field["tag"], range:range(range:len() - TAG_BYTES, TAG_BYTES))
        return string.format("%s of %s, stripe %d, epoch %s: %s", name, sender, stripe:le_uint(), epoch, told)
    end)
    if ok then
        return kind, said
    end
    local why = type(said) == "table" and said.why or tostring(said)
    tree:add_proto_expert_info(malformed, why)
    return kind, string.format("%s [malformed: %s]", KINDS[kind] or "unknown", why)
end

function isocast.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "Isocast"
    local tree = root:add(isocast, buffer())
    local _, said = frame(buffer(), tree, false)
    tree:append_text(": " .. said)
    pinfo.cols.info = said
    return buffer:len()
end

-- ---- where packets are looked for

local function is_ours(buffer, pinfo, root)
    if buffer:len() < HEADER_BYTES + TAG_BYTES or buffer(0, 2):uint() ~= MAGIC or buffer(2, 1):uint() ~= VERSION
        or not KINDS[buffer(3, 1):uint()] then
        return false
    end
    isocast.dissector(buffer, pinfo, root)
    return true
end

isocast:register_heuristic("udp", is_ours)

local udp_ports = DissectorTable.get("udp.port")
udp_ports:add_for_decode_as(isocast)
local chosen = nil

function isocast.prefs_changed()
    if chosen == isocast.prefs.ports then
        return
    end
    if chosen and chosen ~= "" then
        udp_ports:remove(chosen, isocast)
    end
    chosen = isocast.prefs.ports
    if chosen ~= "" then
        udp_ports:add(chosen, isocast)
    end
end
