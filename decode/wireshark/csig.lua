-- csig.lua dissects CSIG tags and their reflections in TCP, for Wireshark and tshark.
--
-- Section numbers refer to draft-ravi-ippm-csig-01. README.md beside this file explains
-- the installation. The dissector names signals and shows raw fields; their values in
-- bit/s or nanoseconds depend on the network's configuration, which csigscope reads.

local csig = Proto("csig", "Congestion Signaling")
local reflection = Proto("csig.reflection", "Congestion Signaling Reflection")

local SIGNALS = {
    ietf01 = { [0] = "min_abw", "min_abw_ratio", "max_delay" },
    uec050 = { [0] = "min_abw", "min_abw_ratio", "max_delay", "max_nqd" },
}

-- The data fields, most significant bit first, as words of two or four bytes:
-- Figures 1 and 2 for ietf01, "Two L2 Tags" of the IEEE 802.1 slides for uec050.
local LAYOUTS = {
    { format = "compact", profile = "ietf01", tpids = "0x9900", "T:3 R:1 S:5 LM:7" },
    { format = "compact", profile = "uec050", tpids = "0x88b5", "T:3 R:1 S:5 LM:6 D:1" },
    { format = "wide", profile = "ietf01", tpids = "", "LM:16", "T:4 S:20 R:8" },
    { format = "wide", profile = "uec050", tpids = "0x88b6", "LM:15 D:1", "T:4 S:20 R:8" },
}

local NAMES = {
    T = { "type", "Signal type" },
    S = { "s", "Signal value" },
    LM = { "lm", "Locator metadata" },
    D = { "d", "Trimmed, do not update" },
    R = { "r", "Reserved" },
}

-- parse_layout turns the words of a layout into its parts: where each field is, in
-- bytes from the start of the data fields and in bits from the start of its word.
local function parse_layout(layout)
    layout.parts, layout.bytes = {}, 0
    for _, word in ipairs(layout) do
        local parts, bits = {}, 0
        for name, width in word:gmatch("(%u+):(%d+)") do
            width = tonumber(width)
            table.insert(parts, { name = name, bit = bits, width = width })
            bits = bits + width
        end
        for _, part in ipairs(parts) do
            part.offset, part.bytes = layout.bytes, bits / 8
            part.mask = (2 ^ part.width - 1) * 2 ^ (bits - part.bit - part.width)
            table.insert(layout.parts, part)
        end
        layout.bytes = layout.bytes + bits / 8
    end
end

for _, layout in ipairs(LAYOUTS) do
    parse_layout(layout)
end

local function part_field(prefix, layout, part)
    local abbrev, name = prefix .. NAMES[part.name][1], NAMES[part.name][2]
    if part.name == "D" then
        return ProtoField.bool(abbrev, name, part.bytes * 8, nil, part.mask)
    end
    local make = part.bytes == 2 and ProtoField.uint16 or ProtoField.uint32
    local values = part.name == "T" and SIGNALS[layout.profile] or nil
    return make(abbrev, name, base.DEC, values, part.mask)
end

-- make_fields makes the filter fields of the data fields. Layouts share their names:
-- Wireshark allows several fields with one name and different masks.
local function make_fields(prefix)
    local fields = {
        format = ProtoField.string(prefix .. "format", "Format"),
        profile = ProtoField.string(prefix .. "profile", "Profile"),
        signal = ProtoField.string(prefix .. "signal", "Signal"),
        reserved = ProtoExpert.new(prefix .. "reserved", "Reserved bits are set",
            expert.group.PROTOCOL, expert.severity.NOTE),
        parts = {},
    }
    fields.all = { fields.format, fields.profile, fields.signal }
    for _, layout in ipairs(LAYOUTS) do
        for _, part in ipairs(layout.parts) do
            local field = part_field(prefix, layout, part)
            fields.parts[part] = field
            table.insert(fields.all, field)
        end
    end
    return fields
end

local tag_fields = make_fields("csig.")
local tag_next = ProtoField.uint16("csig.next", "Next EtherType", base.HEX)
local tag_orphan = ProtoField.bool("csig.orphan", "Orphan")
local tag_cut = ProtoExpert.new("csig.cut", "The capture ends inside the tag",
    expert.group.UNDECODED, expert.severity.WARN)
local tag_followed = ProtoExpert.new("csig.followed", "Not the last tag of L2, so that it counts for nothing",
    expert.group.PROTOCOL, expert.severity.WARN)
local tag_behind_vlans = ProtoExpert.new("csig.behind_vlans", "Behind more than four VLAN tags, where no tag is expected",
    expert.group.PROTOCOL, expert.severity.WARN)
local tag_inside = ProtoExpert.new("csig.inside", "Inside a tunnel, where no tag is expected by default",
    expert.group.PROTOCOL, expert.severity.WARN)
local tag_too_deep = ProtoExpert.new("csig.too_deep", "Too many tags: the rest is not dissected",
    expert.group.UNDECODED, expert.severity.WARN)
table.insert(tag_fields.all, tag_next)
table.insert(tag_fields.all, tag_orphan)
csig.fields = tag_fields.all
csig.experts = { tag_fields.reserved, tag_cut, tag_followed, tag_behind_vlans, tag_inside, tag_too_deep }

local reflection_fields = make_fields("csig.reflection.")
local reflection_empty = ProtoExpert.new("csig.reflection.empty",
    "No data fields: the path is not CSIG-capable", expert.group.PROTOCOL, expert.severity.NOTE)
local reflection_invalid = ProtoExpert.new("csig.reflection.invalid",
    "Neither 2 nor 6 bytes of data fields", expert.group.PROTOCOL, expert.severity.NOTE)
local reflection_orphan = ProtoField.bool("csig.reflection.orphan", "Orphan")
local reflection_mirrored = ProtoExpert.new("csig.reflection.mirrored",
    "In a mirror session, which anybody can send", expert.group.PROTOCOL, expert.severity.WARN)
table.insert(reflection_fields.all, reflection_orphan)
reflection.fields = reflection_fields.all
reflection.experts = { reflection_fields.reserved, reflection_empty, reflection_invalid, reflection_mirrored }

-- add_data shows the data fields at the start of range, and returns a short summary.
local function add_data(tree, range, layout, fields)
    local data = range(0, layout.bytes)
    tree:add(fields.format, data, layout.format):set_generated()
    tree:add(fields.profile, data, layout.profile):set_generated()
    local value = {}
    for _, part in ipairs(layout.parts) do
        local word = data(part.offset, part.bytes)
        local item = tree:add(fields.parts[part], word)
        value[part.name] = word:bitfield(part.bit, part.width)
        if part.name == "R" and value.R ~= 0 then
            item:add_proto_expert_info(fields.reserved)
        end
    end
    local signal = SIGNALS[layout.profile][value.T] or string.format("type_%d", value.T)
    tree:add(fields.signal, data, signal):set_generated()
    return string.format("%s S=%d LM=%d%s", signal, value.S, value.LM, value.D == 1 and " trimmed" or "")
end

-- Tags

local ethertypes = DissectorTable.get("ethertype")
local llc = Dissector.get("llc")
local ip_version, ipv6_version = Field.new("ip.version"), Field.new("ipv6.version")
local mpls_label = Field.new("mpls.label")

-- GRE has its own table of payload types.
local tables = { ethertypes, DissectorTable.get("gre.proto") }

-- The layout of each configured TPID, and the previous dissector of the EtherType in each
-- table.
local layout_of, displaced = {}, {}

-- Headers before the current tag or reflection: Wireshark opens more headers than csigscope,
-- and continues behind them.
local vlan_tags = { Field.new("vlan.id"), Field.new("ieee8021ad.id"), Field.new("ieee8021ad.svid"), Field.new("ieee8021ad.cvid") }
local geneve_version, geneve_oam = Field.new("geneve.version"), Field.new("geneve.flags.oam")
local vxlan_has_id, vxlan_gpe_version, vxlan_gpe_oam = Field.new("vxlan.flag_i"), Field.new("vxlan.ver"), Field.new("vxlan.o_bit")
local gre_proto, erspan_version = Field.new("gre.proto"), Field.new("erspan.version")
local erspan, tzsp, pseudowire_sequence = Field.new("erspan"), Field.new("tzsp"), Field.new("pweth.cw.sequence_number")
local macsec_length, macsec_sci = Field.new("macsec.SL"), Field.new("macsec.TCI.SC")

local function is_set(info)
    return info ~= nil and (info.value == true or info.value == 1)
end

local function is_not_zero(info)
    return info ~= nil and tonumber(info.value) ~= 0
end

-- closed is true behind a header where csigscope ends its walk: one of an unknown version,
-- of a control packet, or of no such tunnel.
local function closed()
    if is_not_zero(geneve_version()) or is_set(geneve_oam()) or is_not_zero(vxlan_gpe_version()) or is_set(vxlan_gpe_oam()) then
        return true
    end
    local has_id, version, sequence = vxlan_has_id(), erspan_version(), pseudowire_sequence()
    local reserved = sequence ~= nil and sequence.source(sequence.offset - 2, 2):uint() or 0 -- of a control word
    if has_id ~= nil and not is_set(has_id) or reserved ~= 0 then
        return true
    end
    if version == nil then
        return false
    end
    local protos = { gre_proto() }
    return tonumber(version.value) ~= (protos[#protos].value == 0x22eb and 2 or 1)
end

-- count_vlans counts the VLAN tags before the current tag.
local function count_vlans()
    local n = 0
    for _, field in ipairs(vlan_tags) do
        n = n + select("#", field())
    end
    return n
end

-- user_data_end returns the end of user data that the last SecTAG states, if it does.
local function user_data_end()
    local lengths = { macsec_length() }
    local last = lengths[#lengths]
    if last == nil or last.value == 0 then
        return math.huge
    end
    local with_sci = { macsec_sci() }
    return last.offset + 5 + (is_set(with_sci[#with_sci]) and 8 or 0) + last.value
end

local MAX_VLANS = 4
local VLAN_OR_SECTAG = { [0x8100] = true, [0x88a8] = true, [0x9100] = true, [0x88e5] = true }

-- Maximum number of nested tags. A hostile frame can hold thousands.
local MAX_DEPTH = 16
local depth = 0

-- dissect_rest dissects the bytes after a tag. An EtherType below 0x0600 is the length of
-- an LLC frame (IEEE 802.3).
local function dissect_rest(ethertype, rest, pinfo, tree)
    depth = depth + 1
    -- If the dissector of the rest raises an error, it has already noted it in the tree.
    -- The tag itself is sound.
    if ethertype < 0x0600 then
        pcall(llc.call, llc, rest, pinfo, tree)
    else
        pcall(ethertypes.try, ethertypes, ethertype, rest, pinfo, tree)
    end
    depth = depth - 1
end

-- add_place shows the EtherType after a tag, if it was captured, and whether the tag belongs
-- in this place. A tag is valid only as the last tag of L2 (section 4.1), behind at most four
-- VLAN tags, and csigscope by default expects none inside tunnels.
local function add_place(tree, range, ethertype)
    if ethertype then
        tree:add(tag_next, range(range:len() - 2))
    end
    local inside = ip_version() or ipv6_version() or mpls_label()
    local followed = layout_of[ethertype] ~= nil or VLAN_OR_SECTAG[ethertype] ~= nil
    local orphan = inside ~= nil or followed or count_vlans() > MAX_VLANS
    local item = tree:add(tag_orphan, range, orphan)
    item:set_generated()
    if orphan then
        item:add_proto_expert_info(inside and tag_inside or followed and tag_followed or tag_behind_vlans)
    end
    return orphan
end

local function dissect_tag(layout, tvb, pinfo, tree)
    if closed() then
        return 0
    end
    local have = math.max(0, math.min(tvb:captured_len(), user_data_end() - tvb:offset()))
    local whole = layout.bytes + 2
    local range = tvb(0, math.min(have, whole))
    local item = tree:add(csig, range)
    pinfo.cols.protocol = "CSIG"
    if have < layout.bytes then
        item:add_proto_expert_info(tag_cut)
        return have
    end
    local text = add_data(item, range, layout, tag_fields)
    item:append_text(", " .. text)
    local ethertype = have >= whole and tvb(layout.bytes, 2):uint()
    local orphan = add_place(item, range, ethertype)
    if have > whole and depth == MAX_DEPTH then
        item:add_proto_expert_info(tag_too_deep)
    elseif have > whole then
        dissect_rest(ethertype, tvb(whole):tvb(), pinfo, tree)
    end
    pinfo.cols.info:append((orphan and "  CSIG orphan " or "  CSIG ") .. text)
    return have
end

-- Only the TPID that led here gives the layout.
function csig.dissector(tvb, pinfo, tree)
    local layout = layout_of[pinfo.match_uint]
    return layout and dissect_tag(layout, tvb, pinfo, tree) or 0
end

-- Reflections

local tcp_options = Field.new("tcp.options")
local icmp_type, icmpv6_type = Field.new("icmp.type"), Field.new("icmpv6.type")

-- How to recognize a reflection among the options, from the preferences.
local encoding = {}

local function add_empty(range, head, tree)
    tree:add(reflection, range(0, head)):add_proto_expert_info(reflection_empty)
end

local function add_invalid(range, length, tree)
    local whole = math.max(2, math.min(length, range:len()))
    tree:add(reflection, range(0, whole)):add_proto_expert_info(reflection_invalid)
end

local function add_reflection(layout, range, head, pinfo, tree)
    local item = tree:add(reflection, range(0, head + layout.bytes))
    local text = add_data(item, range(head), layout, reflection_fields)
    item:append_text(", " .. text)
    local orphan = erspan() ~= nil or tzsp() ~= nil
    local place = item:add(reflection_orphan, range(0, head + layout.bytes), orphan)
    place:set_generated()
    if orphan then
        place:add_proto_expert_info(reflection_mirrored)
    end
    pinfo.cols.info:append((orphan and "  CSIG orphan reflection " or "  CSIG reflection ") .. text)
end

-- read_option shows the option at the start of range, of at least two bytes, if it is
-- a reflection, and returns the option's length.
local function read_option(range, pinfo, tree)
    local length = range(1, 1):uint()
    local head = 2 + encoding.exid_bytes
    if range(0, 1):uint() ~= encoding.kind or range:len() < head then
        return length
    end
    if encoding.exid_bytes > 0 and range(2, encoding.exid_bytes):uint() ~= encoding.exid then
        return length
    end
    local data = encoding.payload and length or length - head
    local layout = encoding.layouts[data]
    if layout then
        if head + data <= range:len() then
            add_reflection(layout, range, head, pinfo, tree)
        end
        return head + data
    end
    if data == 0 then
        add_empty(range, head, tree)
        return head
    end
    add_invalid(range, length, tree)
    return length
end

local function walk_options(range, pinfo, tree)
    local at, length = 0, range:len()
    while at < length do
        local kind = range(at, 1):uint()
        if kind == 0 then
            return
        end
        local n = 1
        if kind ~= 1 then
            if at + 2 > length then
                return
            end
            n = read_option(range(at), pinfo, tree)
            if n < 2 then
                return
            end
        end
        at = at + n
    end
end

-- overruns is true for a TCP header that claims more bytes than its packet has: the bytes in
-- place of its options are not options. A header that the capture truncated may still hold
-- whole reflections.
local function overruns(options, pinfo)
    local words = options.source(options.offset - 8, 1):bitfield(0, 4)
    return pinfo.caplen == pinfo.len and options.range:len() < words * 4 - 20
end

function reflection.dissector(_, pinfo, tree)
    -- An ICMP error quotes another packet, with its reflection.
    if not encoding.kind or icmp_type() or icmpv6_type() or closed() then
        return
    end
    for _, options in ipairs({ tcp_options() }) do
        if not overruns(options, pinfo) then
            walk_options(options.range, pinfo, tree)
        end
    end
end

-- Preferences

local function tpid_pref(layout)
    return "tpid_" .. layout.format .. "_" .. layout.profile
end

for _, layout in ipairs(LAYOUTS) do
    csig.prefs[tpid_pref(layout)] = Pref.string(
        "TPIDs of " .. layout.format .. "/" .. layout.profile, layout.tpids,
        "EtherTypes that stand for this layout, such as 0x9900, separated by commas; empty: none")
end

local NO_EXID, EXID16, EXID32 = 0, 2, 4
local IETF01, UEC050 = 1, 2
local PROFILES = { { 1, "ietf01", IETF01 }, { 2, "uec050", UEC050 } }

csig.prefs.reflections = Pref.bool("Dissect reflections in TCP", true,
    "Look for reflections among the options of TCP (section 4.2.1)")
csig.prefs.reflection_kind = Pref.uint("Reflection: option kind", 253,
    "Kind of the TCP option: 253 or 254 with an experiment identifier (RFC 6994), or a plain kind")
csig.prefs.reflection_exid_size = Pref.enum("Reflection: experiment identifier", EXID16,
    "Size of the experiment identifier after kind and length",
    { { 1, "none", NO_EXID }, { 2, "16 bits", EXID16 }, { 3, "32 bits", EXID32 } }, false)
csig.prefs.reflection_exid = Pref.string("Reflection: experiment identifier is", "0xc516",
    "Value of the experiment identifier")
csig.prefs.reflection_payload_length = Pref.bool("Reflection: length counts data fields only", false,
    "The option's length octet counts the data fields, as the draft has it, not the whole option (RFC 9293)")
csig.prefs.reflection_compact = Pref.enum("Reflection: profile of 2 bytes", IETF01,
    "Profile of compact data fields", PROFILES, false)
csig.prefs.reflection_wide = Pref.enum("Reflection: profile of 6 bytes", UEC050,
    "Profile of wide data fields", PROFILES, false)

local function complain(pref, value, expected)
    report_failure(string.format("csig.%s: %q: expected %s", pref, value, expected))
end

-- EtherTypes that csigscope itself parses. One of them as a TPID would hide its protocol.
local RESERVED = {
    [0x0800] = true, [0x0806] = true, [0x86dd] = true, [0x8100] = true, [0x88a8] = true, [0x9100] = true,
    [0x88e5] = true, [0x8847] = true, [0x8848] = true, [0x88cc] = true, [0x8808] = true,
}

-- unregister gives the EtherTypes back to their previous dissectors.
local function unregister()
    for tpid in pairs(layout_of) do
        for i, dissectors in ipairs(tables) do
            dissectors:remove(tpid, csig)
            if displaced[tpid][i] then
                dissectors:add(tpid, displaced[tpid][i])
            end
        end
    end
    layout_of, displaced = {}, {}
end

local function register(tpid, layout)
    layout_of[tpid], displaced[tpid] = layout, {}
    for i, dissectors in ipairs(tables) do
        displaced[tpid][i] = dissectors:get_dissector(tpid)
        dissectors:add(tpid, csig)
    end
end

local function register_all(layout)
    local pref = tpid_pref(layout)
    for word in csig.prefs[pref]:gmatch("[^,%s]+") do
        local tpid = tonumber(word)
        if not tpid or tpid % 1 ~= 0 or tpid < 0x0600 or tpid > 0xffff or RESERVED[tpid] then
            complain(pref, word, "a free EtherType from 0x0600 to 0xffff")
        elseif layout_of[tpid] then
            complain(pref, word, "a TPID that is given once")
        else
            register(tpid, layout)
        end
    end
end

local function reflection_layout(format, profile)
    for _, layout in ipairs(LAYOUTS) do
        if layout.format == format and layout.profile == PROFILES[profile][2] then
            return layout
        end
    end
end

local function read_encoding()
    local prefs = csig.prefs
    encoding = {}
    if not prefs.reflections then
        return
    end
    local exid = tonumber(prefs.reflection_exid)
    if not exid and prefs.reflection_exid_size ~= NO_EXID then
        complain("reflection_exid", prefs.reflection_exid, "a number such as 0xc516")
        return
    end
    encoding = {
        kind = prefs.reflection_kind,
        exid_bytes = prefs.reflection_exid_size,
        exid = exid,
        payload = prefs.reflection_payload_length,
        layouts = {
            [2] = reflection_layout("compact", prefs.reflection_compact),
            [6] = reflection_layout("wide", prefs.reflection_wide),
        },
    }
end

local function configure()
    unregister()
    for _, layout in ipairs(LAYOUTS) do
        register_all(layout)
    end
    read_encoding()
end

function csig.prefs_changed()
    configure()
end

configure()
register_postdissector(reflection)
