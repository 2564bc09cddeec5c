/* Counts CSIG tags and reflections where packets arrive. It reads packets with up to two VLAN tags, IPv4 or IPv6, and a
 * transport header exactly as package decode does. Rarer packets are called odd and left to user space, so that none is
 * counted under a wrong key. kernel_linux.go loads the program and reads its maps. */

#include "kernel.h"

char _license[] SEC("license") = "Apache-2.0";

/* Classes of EtherTypes; a CSIG TPID has TAG plus the index of its layout. */
enum { OTHER, VLAN, IPV4, IPV6, UNREAD, TAG };

/* Why a packet is odd. counters.odd has these numbers. */
enum {
	ODD_CUT,       /* ends inside a header, or a header contradicts itself */
	ODD_LONG,      /* its headers are longer than MAX_READ */
	ODD_L2,        /* MACsec, MPLS, more VLAN tags, two tags */
	ODD_TUNNEL,    /* a tunnel, whose inner packet is not read */
	ODD_IP,        /* extension headers that are not read, or IPv4 addresses in IPv6 */
	ODD_UDP,       /* a tunnel over UDP, or reflections in a payload that are too far behind or several */
	ODD_OPTIONS,   /* TCP options: wrong, or several reflections */
	ODD_REASONS,
};

/* Other results: NONE is no CSIG, FOUND is CSIG. NOT_PLAIN is a result of plain alone. */
enum { NONE = ODD_REASONS, FOUND, NOT_PLAIN };

enum { MAX_READ = 224, MAX_PLAIN = 128, /* at least the headers of a plain packet */
       MAX_VLANS = 2, MAX_EXTENSIONS = 3, MAX_OPTIONS = 40, MAX_ENCODINGS = 16, MAX_EXTRACTORS = 16 };

enum { PROTO_IPV4 = 4, PROTO_TCP = 6, PROTO_UDP = 17, PROTO_DCCP = 33, PROTO_IPV6 = 41, PROTO_GRE = 47, PROTO_ESP = 50,
       PROTO_AH = 51, PROTO_SCTP = 132, PROTO_UDPLITE = 136, PROTO_ETHERNET = 143 };
enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60, MOBILITY = 135, SEGMENTS = 4 };

/* Classes of observations. */
enum { VALUE, UNTOUCHED, TRIMMED, REPEATED, REFUSED };

/* rest packs the small fields of a key into one word, in the order of key.go. Code stores and loads the whole word: a load
 * of a word whose bytes were stored one by one stalls the processor. type is layout << 4 | T; kind is 1 for a reflection. */
#define rest(lm, cpu, kind, type, class, flags) \
	((u64)(lm) | (u64)(cpu) << 16 | (u64)(kind) << 32 | (u64)(type) << 40 | (u64)(class) << 48 | (u64)(flags) << 56)

enum { HAS_ADDRS = 1, IS_V6 = 2, OVERFLOW = 4, USED = 8 }; /* flags of a key; every key has USED, so that an empty entry is no key */

/* One way to encode reflections as TCP options: decode/csig.Reflection. */
struct encoding {
	u32 exid;
	u8 kind;
	u8 exid_len;
	u8 payload;   /* the length octet counts the data fields alone */
	u8 layout[2]; /* index of the layout of compact and of wide data fields */
	u8 pad[3];
};

/* A place of reflections in the payload of UDP: decode/csig.UDPReflection. */
struct extractor {
	u16 offset, valid_offset, match_offset;
	u8 layout, valid_mask, match_mask, match_value;
	u8 pad[2];
};

enum { MAX_SPLITS = 12 };

/* A signal type in a layout. */
struct signal {
	u32 initial; /* raw S of an untouched tag */
	/* Of wide tags: the field of raw S that is the code, the last code, and codes at which segments begin. */
	u32 mask, shift, last;
	u32 splits[MAX_SPLITS]; /* ascending; unused ones are the largest number */
};

/* The values that are heavy at any of the fabric's port capacities. Compact: first has a bit for each raw S. Wide: the codes
 * from first to last. User space, which knows the port, decides in the end. */
struct heavy {
	u32 first, last;
};

/* The settings. User space writes them before the program is attached, and those that are volatile later too. */
u8 types[1 << 16];                        /* classes by EtherType */
u8 udp_ports[1 << 13];                    /* bits by UDP destination port: of tunnels and of reflections */
u16 udp_extractors[1 << 16];              /* bits of extractors by UDP destination port */
struct extractor extractors[MAX_EXTRACTORS];
u8 option_kinds[256];                     /* 1 + index of the first encoding by kind, 0 for none */
struct encoding encodings[MAX_ENCODINGS]; /* in the order of kinds */
u32 encoding_count;
struct signal signals[64];                /* by layout and T */
struct heavy heavies[64];                 /* likewise */
u32 budget;                               /* samples of a CPU between two readings, at least 32; 0: no samples */
u32 locate_untouched;
u32 refuse[2];                            /* kinds that the tap's place does not admit */
u64 resolution;                           /* ns, of windows */
volatile u64 tai_offset;                  /* ns that TAI is ahead of Unix time; it changes when a time service sets it */
u64 udp_repeat;                           /* ns, for reflections without an acknowledgement number */
u32 use_classes;                          /* endpoints are classes; else prefixes under the masks */
u64 mask4, mask6;                         /* of the first 4 or 8 bytes of an address in memory */
u32 snap;                                 /* maximum length of an odd packet in the ring */

u64 secrets[8];                           /* of hashes, so that nobody can make keys collide */
u32 buckets;                              /* in the index of a buffer, a power of two, minus one: a mask */
volatile u32 first_buckets[2];            /* the mask of the buckets that find tries first, by buffer */
u32 room;                                 /* entries of a buffer, at most (1 << NUMBER_BITS) - 1 */

/* How often user space has read a buffer so far. The lowest bit is the number of the buffer in use. */
volatile u32 readings;

/* A key names observations that are counted together. Each CPU has its own keys, so an entry has one writer. */
struct key {
	u64 src, dst;  /* endpoints of the measured path: classes or prefixes */
	u32 window;    /* number of the window since 1970, modulo 2^32 */
	u32 s;         /* compact: raw S / 4. Wide: segment << 16 | bucket of the code; a trimmed tag: 0 if untouched, else 1 */
	u64 rest;      /* see rest */
};

/* An entry fills a cache line: waiting for memory is most of the cost of a packet. */
struct entry {
	struct key key;
	u64 bytes;
	u64 sum; /* wide: of codes */
	union {
		u32 count[4]; /* compact: by raw S % 4 */
		struct {
			u32 n, min, max; /* wide: codes */
			u32 pad;
		};
	};
};

/* The value of an overflow entry. */
struct compact {
	u64 bytes;
	u32 count[32]; /* by raw S */
};

struct counters {
	u64 packets, bytes;     /* counted packets with CSIG */
	u64 supers;             /* those that receive offload merged of several */
	u64 odd[ODD_REASONS];
	u64 empty, invalid;     /* reflections without data fields, and with an impossible number of bytes */
	u64 overflow;           /* observations without an entry: in the overflow map, or lost */
	u64 lost;               /* observations for which the overflow map had no room either */
	u64 unsampled;          /* heavy observations for which samples had no budget or no room */
};

/* Entries are taken in order, so those in use are close together and need few pages. Both buffers are halves of
 * one array. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct entry);
} entries SEC(".maps");

enum { SLOTS = 16, NUMBER_BITS = 18 };

/* A bucket of the index fills a cache line. A slot is 0 if free, else hash bits << NUMBER_BITS | 1 + number of the entry. */
struct bucket {
	u32 slot[SLOTS];
};

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct bucket);
} index_buckets SEC(".maps");

/* Entries taken from each buffer. It exceeds room if several CPUs tried to take the last ones. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, u64);
} taken SEC(".maps");

/* Counts of observations for which a buffer has no room. */
struct overflow_map {
	UINT(type, MAP_HASH);
	UINT(max_entries, 1);
	UINT(key_size, sizeof(struct key));
	UINT(value_size, sizeof(struct compact));
};

struct {
	UINT(type, MAP_ARRAY_OF_MAPS);
	UINT(max_entries, 2);
	TYPE(key, u32);
	INNER(values, struct overflow_map);
} overflows SEC(".maps");

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct counters);
} counts SEC(".maps");

/* A sampled heavy observation. It stands for `every` heavy observations of its CPU. */
struct sample {
	u8 src[16], dst[16]; /* of the packet, of IPv4 in the first 4 bytes */
	u32 window, s, bytes, every;
	u16 lm, src_port, dst_port;
	u8 proto, kind, type, flags;
	u8 buffer; /* in which the observation was counted */
	u8 pad[5];
};

struct {
	UINT(type, MAP_RINGBUF);
	UINT(max_entries, 4096);
} samples SEC(".maps");

/* Which heavy observations a CPU samples: on average one of `every`, at random distances, so that flows whose packets
 * alternate are sampled evenly. A reading starts with the `every` that spends half of the budget on as many heavy
 * observations as the last reading had. In the other half, `every` doubles after each 32nd part of the budget. */
struct sampler {
	u64 heavy;   /* heavy observations in this reading */
	u32 reading;
	u32 every;
	u32 skip;    /* heavy observations up to the next sample */
	u32 samples; /* in this reading */
};

struct address {
	u32 bits;
	u8 addr[16];
};

struct {
	UINT(type, MAP_LPM_TRIE);
	UINT(max_entries, 1);
	UINT(map_flags, NO_PREALLOC);
	TYPE(key, struct address);
	TYPE(value, u64);
} classes SEC(".maps");

/* An address whose classes a CPU remembers: its class as a source << 32 | its class as a destination. */
struct known {
	u64 hi, lo;
	u64 classes;
	u64 there;
};

enum { KNOWN_BITS = 12 };

/* 1 << KNOWN_BITS addresses of each CPU. A mappable array starts at a page, so no element straddles two cache lines, and
 * unlike in a per-CPU map no pointer has to be loaded first. */
struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 1 << KNOWN_BITS);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct known);
} known SEC(".maps");

/* The last reflection of a flow and signal type, as window.repeatFlow. It is empty if flow is 0. */
struct repeat_flow {
	u64 flow; /* digest */
	u64 said; /* digest of the fields << ACK_BITS | newest acknowledgement number, or << TIME_BITS | time, ns */
};

enum { REPEAT_WAYS = 4, REPEAT_SETS = 1 << 14, ACK_BITS = 32, TIME_BITS = 40 };

/* The set of a flow fills a cache line. The flow used last comes first. A CPU locks the set by
 * exchanging the first digest for BUSY. */
struct repeat_set {
	struct repeat_flow way[REPEAT_WAYS];
};

#define BUSY (~0ull)

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, REPEAT_SETS);
	UINT(map_flags, MMAPABLE); /* starts at a page */
	TYPE(key, u32);
	TYPE(value, struct repeat_set);
} reflected SEC(".maps");

/* The state while TCP options are read. It is in map memory, whose values the verifier does not track: it then verifies the
 * body of each loop once, not once for every state. */
struct options {
	u32 at, end;
	u32 first;          /* index of the first encoding to try */
	u32 own;            /* length of the option as its encoding counts it */
	u32 empty, invalid; /* if no encoding fits: the option's length if one reads it as empty, 1 if one reads it as invalid */
	u32 several;        /* the packet has several reflections */
	u32 wrong, done;
};

/* The UDP payload that is read. */
struct datagram {
	u32 at, have, left; /* offset, bytes in memory, and bytes by the headers */
	u32 which;          /* the extractors to try, a bit each */
	u32 odd;
};

/* The data fields of a tag or a reflection. */
struct fields {
	u32 s;
	u16 lm;
	u8 type;
	u8 trimmed;
	u8 reserved;
	u8 there;
};

/* The contents of a packet. */
struct packet {
	struct fields tag, reflection;
	u32 ip;    /* offset of the IP header, 0 for none */
	u32 v6;
	u32 ports; /* offset of the transport header if it has ports, 0 for none */
	u32 proto;
	u32 empty, invalid;
};

/* The working memory of a CPU. data is a copy of a packet's first bytes, larger than any offset that byte and others mask. */
struct scratch {
	u8 data[256 + 64];
	struct packet packet;
	struct options options;
	struct datagram datagram;
	struct sampler sampler;
	struct compact zeroes;  /* a new overflow entry */
	u64 tick;               /* when the clock was read, in jiffies */
	u64 from, until;        /* the current window, TAI in ns */
	u64 offset;             /* tai_offset when the window was found */
	u32 window;
	u32 near;               /* the window may end before the next tick is seen */
	u32 code;               /* of the current wide tag */
	u32 bytes, reading, buffer; /* of the current packet */
	struct key key;
};

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct scratch);
} scratches SEC(".maps");

INLINE u8 byte(struct scratch *m, u32 at) { return m->data[at & 0xff]; }
INLINE u16 word(struct scratch *m, u32 at) { return be16(*(u16 *)&m->data[at & 0xff]); }
INLINE u32 dword(struct scratch *m, u32 at) { return be32(*(u32 *)&m->data[at & 0xff]); }
INLINE u32 raw32(struct scratch *m, u32 at) { return *(u32 *)&m->data[at & 0xff]; }
INLINE u64 raw64(struct scratch *m, u32 at) { return *(u64 *)&m->data[at & 0xff]; }

/* profile, compact_fields and wide_fields do what csig.Tag.Parse does. */
INLINE void profile(struct fields *f, u32 layout, u16 lm)
{
	f->trimmed = 0;
	if (layout & 1) { /* uec050 */
		f->trimmed = lm & 1;
		lm >>= 1;
	}
	f->lm = lm;
	f->there = 1;
}

INLINE void compact_fields(struct fields *f, u32 layout, u16 v)
{
	f->s = v >> 7 & 31;
	f->type = layout << 4 | v >> 13;
	f->reserved = v >> 12 & 1;
	profile(f, layout, v & 0x7f);
}

INLINE void wide_fields(struct fields *f, u32 layout, u16 lm, u32 v)
{
	f->s = v >> 8 & 0xfffff;
	f->type = layout << 4 | v >> 28;
	f->reserved = v;
	profile(f, layout, lm);
}

INLINE void read_fields(struct scratch *m, struct fields *f, u32 layout, u32 at)
{
	if (layout & 2)
		wide_fields(f, layout, word(m, at), dword(m, at + 2));
	else
		compact_fields(f, layout, word(m, at));
}

struct reading {
	struct scratch *m;
};

/* try_encoding reads the option at o->at, of at least two bytes, by one encoding. It returns 1 to end the
 * loop over encodings. */
static long try_encoding(u32 i, struct reading *r)
{
	struct scratch *m = r->m;
	struct options *o = &m->options;
	i += o->first;
	if (i >= encoding_count || i >= MAX_ENCODINGS)
		return 1;
	struct encoding *e = &encodings[i];
	u32 left = o->end - o->at, head = 2 + e->exid_len, n = byte(m, o->at + 1);
	if (e->kind != byte(m, o->at))
		return 1;
	if (left < head)
		return 0;
	if (e->exid_len == 2 && word(m, o->at + 2) != e->exid)
		return 0;
	if (e->exid_len == 4 && dword(m, o->at + 2) != e->exid)
		return 0;
	if (!e->payload)
		n -= head;
	if (n == 2 || n == 6) {
		o->own = head + n;
		if (o->own <= left) {
			o->several |= m->packet.reflection.there;
			read_fields(m, &m->packet.reflection, e->layout[n == 6] & 3, o->at + head);
		}
		return 1;
	}
	if (n == 0 && o->empty == 0)
		o->empty = head;
	o->invalid = 1;
	return 0;
}

/* reflection reads an option as decode.Decoder.reflection does. It returns the length of the option by its encoding, or
 * 0 if the option's length octet is right (RFC 9293). */
INLINE u32 reflection(struct reading *r, struct options *o)
{
	struct scratch *m = r->m;
	o->own = o->empty = o->invalid = 0;
	loop(MAX_ENCODINGS, try_encoding, r, 0);
	if (o->own)
		return o->own;
	if (o->empty)
		m->packet.empty++;
	else if (o->invalid)
		m->packet.invalid++;
	return o->empty;
}

/* next_option reads one option. It returns 1 to end the loop: after the last option, or a wrong one. */
static long next_option(u32 i, struct reading *r)
{
	struct scratch *m = r->m;
	struct options *o = &m->options;
	u32 kind = byte(m, o->at), n;
	if (o->at >= o->end || kind == 0) {
		o->done = 1;
		return 1;
	}
	if (kind == 1) {
		o->at++;
		return 0;
	}
	o->wrong = 1;
	if (o->end - o->at < 2)
		return 1;
	n = byte(m, o->at + 1);
	if (option_kinds[kind]) {
		o->first = option_kinds[kind] - 1;
		u32 own = reflection(r, o);
		if (own)
			n = own;
	}
	if (n < 2 || n > o->end - o->at || o->several)
		return 1;
	o->wrong = 0;
	o->at += n;
	return 0;
}

/* tcp_options reads the options behind a header. It returns 0 if it cannot read them. */
static __attribute__((noinline)) int tcp_options(struct scratch *m, u32 at, u32 end)
{
	struct reading r = {m};
	m->options = (struct options){.at = at, .end = end};
	loop(MAX_OPTIONS, next_option, &r, 0);
	return !m->options.wrong && (m->options.done || m->options.at >= end);
}

/* try_extractor looks for a reflection in the payload of UDP by one extractor, as decode's judge does. */
static long try_extractor(u32 i, struct reading *r)
{
	struct scratch *m = r->m;
	struct datagram *d = &m->datagram;
	if (i >= MAX_EXTRACTORS)
		return 1;
	if (!(d->which >> i & 1))
		return 0;
	struct extractor *e = &extractors[i];
	u32 end = e->offset + (e->layout & 2 ? 6 : 2);
	if (e->match_mask) {
		if (e->match_offset >= d->left)
			return 0;
		if (e->match_offset >= d->have)
			goto cut;
		if ((byte(m, d->at + e->match_offset) & e->match_mask) != e->match_value)
			return 0;
	}
	if (e->valid_mask) {
		if (e->valid_offset >= d->left) {
			m->packet.invalid++;
			return 0;
		}
		if (e->valid_offset >= d->have)
			goto cut;
		if (!(byte(m, d->at + e->valid_offset) & e->valid_mask)) {
			m->packet.empty++;
			return 0;
		}
	}
	if (end > d->left) {
		m->packet.invalid++;
		return 0;
	}
	if (end > d->have || m->packet.reflection.there)
		goto cut;
	read_fields(m, &m->packet.reflection, e->layout & 3, d->at + e->offset);
	return 0;
cut:
	d->odd = 1;
	return 1;
}

/* datagram reads a packet to a UDP port of a tunnel or of reflections. at, len and left are as for transport. */
static __attribute__((noinline)) int datagram(struct scratch *m, u32 at, u32 len, u32 left)
{
	struct datagram *d = &m->datagram;
	struct reading r = {m};
	u32 n = word(m, at + 4);
	*d = (struct datagram){.at = at + 8, .which = udp_extractors[word(m, at + 2)]};
	if (d->which == 0)
		return ODD_UDP;
	if (n) { /* else segmentation offload left it out */
		if (n < 8)
			return ODD_CUT;
		if (left > n)
			left = n;
		if (len > at + n)
			len = at + n;
	}
	d->have = len - at - 8;
	d->left = left - 8;
	loop(MAX_EXTRACTORS, try_extractor, &r, 0);
	if (d->odd)
		return ODD_UDP;
	struct packet *p = &m->packet;
	return p->tag.there || p->reflection.there || p->empty || p->invalid ? FOUND : NONE;
}

/* has_ports reports whether the header of a transport other than TCP and UDP has ports and is complete. */
INLINE int has_ports(u32 proto, u32 have)
{
	return proto == PROTO_UDPLITE ? have >= 8 : (proto == PROTO_SCTP || proto == PROTO_DCCP) && have >= 12;
}

/* transport reads the header at an offset of a packet of len bytes. left is the length of header and payload by the
 * IP header. */
INLINE int transport(struct scratch *m, struct packet *p, u32 proto, u32 at, u32 len, u32 left)
{
	int done = p->tag.there ? FOUND : NONE;
	p->proto = proto;
	switch (proto) {
	case PROTO_TCP:
		break;
	case PROTO_UDP:
		if (at + 8 > len || left < 8)
			return ODD_CUT;
		p->ports = at;
		u32 port = word(m, at + 2);
		if (udp_ports[port >> 3 & 0x1fff] >> (port & 7) & 1)
			return datagram(m, at, len, left);
		return done;
	case PROTO_IPV4:
	case PROTO_IPV6:
	case PROTO_GRE:
	case PROTO_ESP:
	case PROTO_ETHERNET:
		return ODD_TUNNEL;
	case PROTO_AH:
		return ODD_IP;
	default:
		if (has_ports(proto, len - at))
			p->ports = at;
		return done;
	}
	if (at + 20 <= len && left >= 20)
		p->ports = at;
	if (encoding_count == 0)
		return done;
	if (!p->ports)
		return ODD_CUT;
	u32 header = byte(m, at + 12) >> 4 << 2;
	if (header < 20 || header > left)
		return ODD_CUT;
	if (at + header > len)
		return ODD_LONG;
	if (header > 20 && !tcp_options(m, at + 20, at + header))
		return ODD_OPTIONS;
	return p->reflection.there || p->empty || p->invalid ? FOUND : done;
}

INLINE int ipv4(struct scratch *m, struct packet *p, u32 at, u32 len)
{
	if (at + 20 > len)
		return ODD_CUT;
	u32 first = byte(m, at), header = (first & 15) << 2, total = word(m, at + 2), part = word(m, at + 6);
	if (first >> 4 != 4 || header < 20 || total < header)
		return ODD_CUT;
	p->ip = at;
	p->proto = byte(m, at + 9);
	if (part & 0x1fff) /* a later fragment */
		return p->tag.there ? FOUND : NONE;
	if (at + header > len)
		return ODD_CUT;
	if (at + total < len)
		len = at + total; /* the rest is padding */
	return transport(m, p, p->proto, at + header, len, total - header);
}

/* mapped reports whether an address is IPv4-mapped (::ffff:0:0/96). */
INLINE int mapped(struct scratch *m, u32 at) { return raw64(m, at) == 0 && dword(m, at + 8) == 0xffff; }

INLINE int ipv6(struct scratch *m, struct packet *p, u32 at, u32 len)
{
	if (at + 40 > len || byte(m, at) >> 4 != 6)
		return ODD_CUT;
	u32 next = byte(m, at + 6), left = word(m, at + 4);
	if (left == 0)
		return ODD_CUT; /* a jumbogram */
	if (mapped(m, at + 8) || mapped(m, at + 24))
		return ODD_IP;
	p->ip = at;
	p->v6 = 1;
	at += 40;
	if (at + left < len)
		len = at + left;
	for (u32 i = 0; i < MAX_EXTENSIONS; i++) {
		u32 n;
		switch (next) {
		case HOP_BY_HOP:
		case ROUTING:
		case DESTINATION:
		case MOBILITY:
		case FRAGMENT:
			break;
		default:
			return transport(m, p, next, at, len, left);
		}
		if (at + 8 > len)
			return ODD_CUT;
		n = next == FRAGMENT ? 8 : (byte(m, at + 1) + 1) << 3;
		if (n > left || at + n > len)
			return ODD_CUT;
		if (next == FRAGMENT && word(m, at + 2) & 0xfff8) {
			p->proto = byte(m, at);
			return p->tag.there ? FOUND : NONE;
		}
		if (next == ROUTING && byte(m, at + 2) == SEGMENTS)
			return ODD_TUNNEL;
		next = byte(m, at);
		at += n;
		left -= n;
	}
	return ODD_IP;
}

/* parse reads a packet from its first len bytes, in m. */
INLINE int parse(struct __sk_buff *skb, struct scratch *m, struct packet *p, u32 len)
{
	u32 type = word(m, 12), at = 14, vlans = 0;
	if (skb->vlan_present) { /* the outermost tag, which the kernel took out */
		u32 class = types[be16((u16)skb->vlan_proto)];
		if (class == VLAN) {
			vlans = 1;
		} else if (class >= TAG && !(class - TAG & 2)) {
			compact_fields(&p->tag, class - TAG, (u16)skb->vlan_tci);
		} else {
			return ODD_L2;
		}
	}
	for (u32 i = 0; i < MAX_VLANS + 2; i++) {
		u32 class = types[type & 0xffff], n = 2;
		switch (class) {
		case OTHER:
			return p->tag.there ? FOUND : NONE;
		case IPV4:
			return ipv4(m, p, at, len);
		case IPV6:
			return ipv6(m, p, at, len);
		case UNREAD:
			return ODD_L2;
		case VLAN:
			if (p->tag.there || ++vlans > MAX_VLANS)
				return ODD_L2;
			break;
		default:
			if (p->tag.there)
				return ODD_L2;
			if (class - TAG & 2)
				n = 6;
		}
		if (at + n + 2 > len)
			return ODD_CUT;
		if (class >= TAG)
			read_fields(m, &p->tag, class - TAG & 3, at);
		type = word(m, at + n);
		at += n + 2;
	}
	return ODD_L2;
}

/* Most packets have a timestamp option first, often after two paddings. */
enum { TIMESTAMP = 8, TIMESTAMP_LEN = 10, PADDED_TIMESTAMP = 0x0101080a, PADDED_LEN = 12 };

/* plain is parse for the most common packets: at most one tag, IP without options, extension headers and fragments, and
 * UDP or TCP. It returns NOT_PLAIN for others. */
INLINE int plain(struct __sk_buff *skb, struct scratch *m, struct packet *p, u32 len)
{
	u32 class = types[word(m, 12)], at = 14, left, proto;
	if (skb->vlan_present || len < 62)
		return NOT_PLAIN;
	if (class >= TAG) {
		u32 layout = class - TAG;
		at = layout & 2 ? 22 : 18;
		class = types[word(m, at - 2)];
		read_fields(m, &p->tag, layout & 3, 14);
	}
	p->ip = at;
	if (class == IPV4) {
		left = word(m, at + 2) - 20;
		if (byte(m, at) != 0x45 || word(m, at + 6) & 0x3fff)
			return NOT_PLAIN;
		proto = byte(m, at + 9);
		at += 20;
	} else if (class == IPV6) {
		left = word(m, at + 4);
		if (byte(m, at) >> 4 != 6 || mapped(m, at + 8) || mapped(m, at + 24))
			return NOT_PLAIN;
		proto = byte(m, at + 6);
		at += 40;
		p->v6 = 1;
	} else {
		return NOT_PLAIN;
	}
	if (left < 20 || left > 1 << 16 || at + left > skb->len || at + 20 > len)
		return NOT_PLAIN;
	int done = p->tag.there ? FOUND : NONE;
	p->proto = proto;
	p->ports = at;
	if (proto == PROTO_UDP) {
		u32 port = word(m, at + 2);
		return udp_ports[port >> 3 & 0x1fff] >> (port & 7) & 1 ? NOT_PLAIN : done;
	}
	if (proto != PROTO_TCP)
		return NOT_PLAIN;
	if (encoding_count == 0)
		return done;
	u32 header = byte(m, at + 12) >> 4 << 2;
	if (header < 20 || header > left || at + header > len)
		return NOT_PLAIN;
	u32 option = at + 20, end = at + header;
	if (!option_kinds[TIMESTAMP] && header >= 20 + PADDED_LEN) {
		if (dword(m, option) == PADDED_TIMESTAMP)
			option += PADDED_LEN;
		else if (word(m, option) == (TIMESTAMP << 8 | TIMESTAMP_LEN))
			option += TIMESTAMP_LEN;
	}
	if (option == end)
		return done;
	if (!tcp_options(m, option, end))
		return ODD_OPTIONS;
	return p->reflection.there || p->empty || p->invalid ? FOUND : done;
}

/* read copies the first bytes of a packet and parses them. direct says that the program may read the packet itself, which
 * is faster. */
INLINE int read(struct __sk_buff *skb, struct scratch *m, struct packet *p, u32 direct)
{
	u32 len = skb->len, head;
	u64 *from = direct ? (void *)(long)skb->data : 0, *to = (u64 *)m->data;
	*p = (struct packet){};
	if (len < 14)
		return ODD_CUT;
	if (len > MAX_READ)
		len = MAX_READ;
	head = len;
	if (direct && (void *)(from + MAX_PLAIN / 8) <= (void *)(long)skb->data_end) {
		head = MAX_PLAIN;
#pragma unroll
		for (u32 i = 0; i < MAX_PLAIN / 8; i++)
			to[i] = from[i];
	} else if (load_bytes(skb, 0, m->data, len)) {
		return ODD_CUT;
	}
	int verdict = plain(skb, m, p, head);
	if (verdict != NOT_PLAIN)
		return verdict;
	if (head < len && load_bytes(skb, 0, m->data, len))
		return ODD_CUT;
	*p = (struct packet){};
	verdict = parse(skb, m, p, len);
	if (verdict == ODD_CUT && skb->len > MAX_READ)
		return ODD_LONG;
	return verdict;
}

/* classes_of returns the classes of an address. The CPU remembers them, since the trie takes several times as long. */
INLINE u64 classes_of(u64 hi, u64 lo)
{
	u64 mixed = (hi ^ lo) * 0x9e3779b97f4a7c15ull;
	u32 slot = cpu_number() << KNOWN_BITS | mixed >> (64 - KNOWN_BITS);
	struct known *k = map_lookup(&known, &slot);
	if (k && k->there && k->hi == hi && k->lo == lo)
		return k->classes;
	struct address a = {.bits = 128};
	*(u64 *)&a.addr[0] = hi;
	*(u64 *)&a.addr[8] = lo;
	u64 *found = map_lookup(&classes, &a), both = found ? *found : 0;
	if (k) {
		k->hi = hi;
		k->lo = lo;
		k->classes = both;
		k->there = 1;
	}
	return both;
}

/* end returns the class or the prefix of the address at an offset, as a source or as a destination. */
INLINE u64 end(struct scratch *m, struct packet *p, u32 at, u32 is_source)
{
	u64 first = p->v6 ? raw64(m, at) : raw32(m, at);
	if (!use_classes)
		return first & (p->v6 ? mask6 : mask4);
	u64 both = p->v6 ? classes_of(first, raw64(m, at + 8)) : classes_of(0, first << 32 | 0xffff0000);
	return is_source ? both >> 32 : both & 0xffffffff;
}

/* mix returns the halves of a product of 128 bits, XORed. */
INLINE u64 mix(u64 a, u64 b)
{
	u64 al = (u32)a, ah = a >> 32, bl = (u32)b, bh = b >> 32;
	u64 low = al * bl, mid = ah * bl + (low >> 32), cross = al * bh + (u32)mid;
	return (a * b) ^ (ah * bh + (mid >> 32) + (cross >> 32));
}

/* repeats reports whether a reflection repeats the previous one of its flow, as window.reflectionDedup does. If another CPU
 * holds the set, the flow is not looked up. */
INLINE int repeats(struct scratch *m, struct packet *p)
{
	struct fields *f = &p->reflection;
	u32 acked = p->proto == PROTO_TCP && byte(m, p->ports + 13) >> 4 & 1;
	if (!acked && udp_repeat == 0)
		return 0;
	u64 tail = (u64)raw32(m, p->ports) << 32 | p->proto << 16 | f->type << 8 | acked << 1 | p->v6, ends;
	if (p->v6)
		ends = mix(raw64(m, p->ip + 8) ^ secrets[0], raw64(m, p->ip + 16) ^ secrets[1]) ^
		       mix(raw64(m, p->ip + 24) ^ secrets[2], raw64(m, p->ip + 32) ^ secrets[3]);
	else
		ends = raw64(m, p->ip + 12) ^ secrets[4];
	u64 flow = mix(ends, tail ^ secrets[5]) | 1, said = mix((u64)f->s << 32 | (u64)f->lm << 16 | f->reserved << 8 | f->trimmed, secrets[6] | 1);
	said = acked ? said << ACK_BITS | dword(m, p->ports + 8) : said << TIME_BITS | (tai_ns() & (1ull << TIME_BITS) - 1);
	if (flow == BUSY)
		flow = 1;
	u32 at = flow >> 50; /* log2(REPEAT_SETS) bits */
	struct repeat_set *set = map_lookup(&reflected, &at);
	if (!set)
		return 0;
	u64 first = BUSY;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < 64 && first == BUSY; i++)
		first = __sync_lock_test_and_set(&set->way[0].flow, BUSY);
	if (first == BUSY)
		return 0;
	struct repeat_flow *way = set->way;
	u64 last = way[0].said;
	int same = 0, known = 1;
	if (first != flow) {
		struct repeat_flow moved = {first, last};
		known = 0;
#pragma unroll
		for (u32 i = 1; i < REPEAT_WAYS; i++) {
			struct repeat_flow here = way[i];
			if (known)
				break;
			way[i] = moved;
			moved = here;
			if (here.flow == flow) {
				last = here.said;
				known = 1;
			}
		}
	}
	if (known && acked) {
		s32 fresh = (u32)said - (u32)last;
		if (fresh <= 0 && fresh >= -(1 << 26)) { /* further back: another connection has the ports */
			same = said >> ACK_BITS == last >> ACK_BITS;
			said = said >> ACK_BITS << ACK_BITS | (u32)last;
		}
	} else if (known) {
		s64 since = (s64)(said << (64 - TIME_BITS)) - (s64)(last << (64 - TIME_BITS));
		since = (s64)since >> (64 - TIME_BITS);
		if (since < 0)
			since = -since;
		if (said >> TIME_BITS == last >> TIME_BITS && since < (s64)udp_repeat) {
			same = 1;
			said = last;
		}
	}
	way[0].said = said;
	__sync_lock_test_and_set(&way[0].flow, flow);
	return same;
}

/* hash is multilinear in secret factors, so that nobody can choose keys that collide, and then mixed, so that keys in a
 * row spread evenly. */
INLINE u32 hash(struct key *k)
{
	u64 h = (u32)k->src * secrets[0] + (k->src >> 32) * secrets[1] + (u32)k->dst * secrets[2] + (k->dst >> 32) * secrets[3] +
		k->window * secrets[4] + k->s * secrets[5] + (u32)k->rest * secrets[6] + (k->rest >> 32) * secrets[7];
	return (h ^ h >> 32) * 0x9e3779b97f4a7c15ull >> 32;
}

/* take takes an entry for a key, if there is room. */
INLINE struct entry *take(struct key *k, u32 buffer, u32 *number)
{
	u64 *count = map_lookup(&taken, &buffer);
	if (!count || *count >= room)
		return 0;
	*number = __sync_fetch_and_add(count, 1);
	if (*number >= room)
		return 0;
	u32 at = buffer * room + *number;
	struct entry *e = map_lookup(&entries, &at);
	if (e)
		e->key = *k;
	return e;
}

/* find returns the entry of a key. It takes one if the key has none yet, and returns 0 if there is no room. All CPUs share
 * the index, but a key belongs to one CPU. find first tries as few buckets as user space expects the keys to need, because
 * few buckets stay in the cache; a key whose bucket is full goes to one of two others. */
INLINE struct entry *find(struct key *k, u32 buffer)
{
	u32 h = hash(k), near = first_buckets[buffer & 1] & buckets, number = 0, here = h & near;
	struct entry *own = 0;
	u32 first = h >> 28; /* most buckets have few keys, so most are found at once */
	u32 mark = h >> NUMBER_BITS << NUMBER_BITS;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < 3 * SLOTS; i++) {
		if (i == SLOTS)
			here = (h | (near + 1)) & buckets;
		if (i == 2 * SLOTS)
			here = (h >> 16 | (near + 1) << 1) & ~(near + 1) & buckets;
		u32 at = buffer * (buckets + 1) + here;
		struct bucket *b = map_lookup(&index_buckets, &at);
		if (!b)
			break;
		volatile u32 *slot = &b->slot[first + i & SLOTS - 1];
		u32 v = *slot;
		if (v == 0) {
			if (!own)
				own = take(k, buffer, &number);
			if (!own)
				return 0;
			v = __sync_val_compare_and_swap(slot, 0, mark | (number + 1));
			if (v == 0)
				return own;
			continue; /* another CPU was first */
		}
		if (v >> NUMBER_BITS << NUMBER_BITS != mark)
			continue;
		at = buffer * room + (v & (1 << NUMBER_BITS) - 1) - 1;
		struct entry *e = map_lookup(&entries, &at);
		if (e && e->key.rest == k->rest && e->key.src == k->src && e->key.dst == k->dst && e->key.window == k->window && e->key.s == k->s)
			return e;
	}
	if (own)
		own->key.rest = 0; /* no slot leads to it */
	return 0;
}

/* add_overflow counts an observation without endpoints, location and wide value. It returns 0 if there is no room. */
INLINE int add_overflow(struct scratch *m, u32 buffer, u32 s, u32 bytes)
{
	struct key *k = &m->key;
	k->src = k->dst = 0;
	k->s = 0;
	k->rest = (k->rest & rest(0, 0xffff, 0xff, 0xff, 0xff, 0)) | rest(0, 0, 0, 0, 0, OVERFLOW | USED);
	void *map = map_lookup(&overflows, &buffer);
	if (!map)
		return 0;
	struct compact *c = map_lookup(map, k);
	if (!c) {
		if (map_update(map, k, &m->zeroes, NOEXIST))
			return 0;
		c = map_lookup(map, k);
		if (!c)
			return 0;
	}
	c->bytes += bytes;
	c->count[s & 31]++;
	return 1;
}

/* wide_key finds the bucket (csig.DistIndex) and the segment of a wide tag's code. */
INLINE u32 wide_key(struct scratch *m, struct signal *sig, u32 s)
{
	u32 code = (s & sig->mask) >> (sig->shift & 31), segment = 0, e = 0;
	if (code > sig->last)
		code = sig->last;
	if (code >= sig->splits[0]) {
#pragma unroll
		for (u32 i = 0; i < MAX_SPLITS; i++)
			segment += code >= sig->splits[i];
	}
	/* The octave above 128 is the length of code >> 7, of 13 bits. */
	u32 x = code >> 7;
	if (x >> 8) {
		e += 8;
		x >>= 8;
	}
	if (x >> 4) {
		e += 4;
		x >>= 4;
	}
	if (x >> 2) {
		e += 2;
		x >>= 2;
	}
	e += x >> 1 ? 2 : x;
	m->code = code;
	return segment << 16 | (e * 64 + (code >> e));
}

/* add counts an observation with a signal's type and value under m->key. It returns 1 if the key has an entry, and 0 after
 * an overflow. It is not static, so that the verifier looks at its loops once, for any arguments, and not on each path
 * to it. */
__attribute__((noinline)) int add(struct scratch *m, struct counters *n, u32 type, u32 s)
{
	u32 wide = type & 0x20;
	if (!m || !n)
		return 0;
	struct entry *e = find(&m->key, m->buffer);
	if (!e) {
		n->overflow++;
		if (!add_overflow(m, m->buffer, wide ? 0 : s, m->bytes))
			n->lost++;
		return 0;
	}
	e->bytes += m->bytes;
	if (!wide) {
		e->count[s & 3]++;
		return 1;
	}
	e->sum += m->code;
	if (e->n++ == 0 || m->code < e->min)
		e->min = m->code;
	if (m->code > e->max)
		e->max = m->code;
	return 1;
}

/* begin_samples starts a CPU's sampling in a new reading. */
INLINE void begin_samples(struct sampler *s, u32 reading)
{
	u64 every = 1 + 2 * s->heavy / budget;
	s->every = every > 1 << 20 ? 1 << 20 : every;
	s->skip = 1 + random() % s->every;
	s->reading = reading;
	s->samples = 0;
	s->heavy = 0;
}

/* sample hands a heavy observation to user space if it is its turn. */
static __attribute__((noinline)) int sample(struct scratch *m, struct counters *n, u32 kind)
{
	struct packet *p = &m->packet;
	struct fields *f = kind ? &p->reflection : &p->tag;
	struct sampler *t = &m->sampler;
	if (t->reading != m->reading || t->every == 0)
		begin_samples(t, m->reading);
	t->heavy++;
	if (t->samples >= budget) {
		n->unsampled++;
		return 0;
	}
	if (--t->skip > 0)
		return 0;
	u32 every = t->every;
	t->samples++;
	if (t->samples >= budget / 2 && t->samples % (budget / 32) == 0 && every < 1 << 20)
		t->every *= 2;
	t->skip = 1 + random() % (2 * t->every - 1);
	struct sample *s = ring_reserve(&samples, sizeof(struct sample), 0);
	if (!s) {
		n->unsampled += every;
		return 0;
	}
	*s = (struct sample){
		.window = m->window, .s = f->s, .bytes = m->bytes, .every = every, .lm = f->lm, .proto = p->proto, .kind = kind, .type = f->type,
		.flags = p->v6 ? HAS_ADDRS | IS_V6 : HAS_ADDRS, .buffer = m->buffer,
	};
	if (p->ports) {
		s->src_port = word(m, p->ports);
		s->dst_port = word(m, p->ports + 2);
	}
	if (p->v6) {
		*(u64 *)&s->src[0] = raw64(m, p->ip + 8);
		*(u64 *)&s->src[8] = raw64(m, p->ip + 16);
		*(u64 *)&s->dst[0] = raw64(m, p->ip + 24);
		*(u64 *)&s->dst[8] = raw64(m, p->ip + 32);
	} else {
		*(u32 *)&s->src[0] = raw32(m, p->ip + 12);
		*(u32 *)&s->dst[0] = raw32(m, p->ip + 16);
	}
	ring_submit(s, NO_WAKEUP);
	return 0;
}

/* is_heavy reports whether an observation with a value may be heavy. */
INLINE int is_heavy(struct scratch *m, struct fields *f)
{
	struct heavy *h = &heavies[f->type & 63];
	if (f->type & 0x20)
		return h->first <= m->code && m->code <= h->last;
	return h->first >> (f->s & 31) & 1;
}

/* If a window ends later than this (ns) after the clock was read, the tick count changes before the window ends: the
 * kernel repairs a count that lags by 5 ticks (MAX_STALLED_JIFFIES), and a tick lasts at most 10 ms. */
enum { NEAR_NS = 100 * 1000 * 1000 };

/* find_window finds the window of the present time. The clock is read once a tick, and for each packet near the end of a
 * window: reading it takes as long as all else that a tag needs. */
INLINE void find_window(struct scratch *m)
{
	u64 tick = jiffies(), offset = tai_offset;
	if (tick == m->tick && !m->near && offset == m->offset)
		return;
	u64 now = tai_ns();
	if (now < m->from || now >= m->until || offset != m->offset) {
		u64 window = (now - offset) / resolution;
		m->window = window;
		m->from = window * resolution + offset;
		m->until = m->from + resolution;
		m->offset = offset;
	}
	m->tick = tick;
	m->near = m->until - now < NEAR_NS;
}

/* count counts the tag or the reflection of a packet. It is not inlined because the processor's instruction cache is
 * small. */
static __attribute__((noinline)) int count(struct scratch *m, struct counters *n, u32 kind)
{
	struct packet *p = &m->packet;
	struct fields *f = kind ? &p->reflection : &p->tag;
	struct key *k = &m->key;
	u64 src = 0, dst = 0;
	u32 class = VALUE, flags = USED, lm = 0, value = 0;
	m->code = 0;
	if (refuse[kind & 1]) {
		class = REFUSED;
	} else if (kind && repeats(m, p)) {
		class = REPEATED;
	} else {
		struct signal *sig = &signals[f->type & 63];
		if (f->s == sig->initial)
			class = UNTOUCHED;
		if (class == VALUE || locate_untouched)
			lm = f->lm;
		if (!(f->type & 0x20))
			value = f->s >> 2;
		else if (f->trimmed) /* its value does not count, only whether it is the initial one */
			value = class == VALUE;
		else
			value = wide_key(m, sig, f->s);
		if (f->trimmed)
			class = TRIMMED;
		if (p->ip) {
			u32 from = p->ip + (p->v6 ? 8 : 12), to = p->ip + (p->v6 ? 24 : 16);
			src = end(m, p, kind ? to : from, 1);
			dst = end(m, p, kind ? from : to, 0);
			flags |= p->v6 && !use_classes ? HAS_ADDRS | IS_V6 : HAS_ADDRS;
		}
	}
	k->src = src;
	k->dst = dst;
	k->window = m->window;
	k->s = value;
	k->rest = rest(lm, cpu_number(), kind, f->type, class, flags);
	if (add(m, n, f->type, class < REPEATED ? f->s : 0) && class == VALUE && budget && p->ip && is_heavy(m, f))
		sample(m, n, kind);
	return 0;
}

SEC("tcx/ingress") int csig_count(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct scratch *m = map_lookup(&scratches, &zero);
	struct counters *n = map_lookup(&counts, &zero);
	if (!m || !n)
		return TCX_NEXT;
	struct packet *p = &m->packet;
	int verdict = read(skb, m, p, 1);
	if (verdict == NONE)
		return TCX_NEXT;
	if (verdict < ODD_REASONS) {
		n->odd[verdict]++;
		return TCX_NEXT;
	}
	/* The buffer is chosen before the time is read, and user space takes the time before it changes the buffer: packets
	 * in the new buffer are later. */
	m->reading = readings;
	m->buffer = m->reading & 1;
	find_window(m);
	m->bytes = skb->len + (skb->vlan_present ? 4 : 0);
	n->packets++;
	n->bytes += m->bytes;
	n->supers += skb->gso_size != 0;
	n->empty += p->empty;
	n->invalid += p->invalid;
	if (p->tag.there)
		count(m, n, 0);
	if (p->reflection.there)
		count(m, n, 1);
	return TCX_NEXT;
}

/* csig_odd is the filter of a ring for odd packets. It passes exactly the packets that csig_count finds odd. */
SEC("socket") int csig_odd(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct scratch *m = map_lookup(&scratches, &zero);
	if (!m)
		return 0;
	return read(skb, m, &m->packet, 0) < ODD_REASONS ? snap : 0;
}
