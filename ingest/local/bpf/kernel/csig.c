/* Counts CSIG tags and reflections where packets arrive. It reads what package decode reads of a
 * packet with up to two VLAN tags, IPv4 or IPv6, and a transport; whatever is rarer it calls odd
 * and leaves to user space, so that no key is ever wrong. kernel_linux.go has the other half. */

#include "kernel.h"

char _license[] SEC("license") = "Apache-2.0";

/* Classes of EtherTypes; a CSIG TPID is TAG and the index of its layout. */
enum { OTHER, VLAN, IPV4, IPV6, UNREAD, TAG };

/* Why a packet is odd. counters.odd has these numbers. */
enum {
	ODD_CUT,       /* ends inside a header, or a header contradicts itself */
	ODD_LONG,      /* its headers are longer than what is read */
	ODD_L2,        /* MACsec, MPLS, more VLAN tags, two tags */
	ODD_TUNNEL,    /* a tunnel: what is inside is not read */
	ODD_IP,        /* extension headers that are not read, or IPv4 addresses in IPv6 */
	ODD_UDP,       /* to a port whose payload may have a reflection */
	ODD_OPTIONS,   /* TCP options: wrong, or several reflections */
	ODD_REASONS,
};

/* What parse returns besides. */
enum { NONE = ODD_REASONS, FOUND };

enum { MAX_READ = 224, MAX_VLANS = 2, MAX_EXTENSIONS = 3, MAX_OPTIONS = 40, MAX_ENCODINGS = 16 };

enum { PROTO_IPV4 = 4, PROTO_TCP = 6, PROTO_UDP = 17, PROTO_IPV6 = 41, PROTO_GRE = 47, PROTO_ESP = 50,
       PROTO_AH = 51, PROTO_ETHERNET = 143 };
enum { HOP_BY_HOP = 0, ROUTING = 43, FRAGMENT = 44, DESTINATION = 60, MOBILITY = 135, SEGMENTS = 4 };

/* What an observation counts as. */
enum { VALUE, UNTOUCHED, TRIMMED, REPEATED, REFUSED };

enum { HAS_ADDRS = 1, IS_V6 = 2, OVERFLOW = 4, USED = 8 }; /* flags of a key; USED has every one */

/* One way to encode reflections as TCP options: decode/csig.Reflection. */
struct encoding {
	u32 exid;
	u8 kind;
	u8 exid_len;
	u8 payload;   /* the length octet counts the data fields alone */
	u8 layout[2]; /* index of the layout of compact and of wide data fields */
	u8 pad[3];
};

enum { MAX_SPLITS = 12 };

/* What is known of a signal type in a layout. */
struct signal {
	u32 initial; /* raw S of an untouched tag */
	/* Of wide tags: how a raw S is a code, and from which codes on entries are apart. */
	u32 mask, shift, last;
	u32 splits[MAX_SPLITS]; /* ascending; beyond the last one there is the largest number */
};

/* The settings. User space writes them before the program is attached. */
u8 types[1 << 16];                        /* classes by EtherType */
u8 odd_ports[1 << 13];                    /* bits by UDP destination port */
u8 option_kinds[256];                     /* 1 for kinds of encodings */
struct encoding encodings[MAX_ENCODINGS];
u32 encoding_count;
struct signal signals[64];                /* by layout and T */
u32 locate_untouched;
u32 refuse[2];                            /* kinds that the tap's place does not admit */
u64 resolution;                           /* ns, of windows */
u64 tai_offset;                           /* ns that TAI is ahead of Unix time */
u64 udp_repeat;                           /* ns, for reflections without an acknowledgement number */
u32 use_classes;                          /* ends are classes; else prefixes, as the masks have them */
u64 mask4, mask6;                         /* of the upper 64 bits of an address */
u32 snap;                                 /* bytes of an odd packet that the ring gets */

u64 seed;                                 /* of the hashes of keys, so that nobody can make them collide */
u32 slots;                                /* of the index of a buffer, less one: a power of two less one */
u32 room;                                 /* entries of a buffer */

/* The number of the buffer that is counted in: 0 or 1. */
volatile u32 active;

/* Counted observations are told apart by this. Each CPU has entries of its own, which no other
 * one writes to. */
struct key {
	u64 src, dst;  /* ends of the measured path: classes or prefixes */
	u32 window;    /* number since 1970, modulo 2^32 */
	u32 s;         /* of wide tags: segment << 8 | octave, where codes are; 1 for a trimmed one that is not untouched */
	union {
		u64 rest;
		struct {
			u16 lm;
			u16 cpu;
			u8 kind;       /* 0 tag, 1 reflection */
			u8 type;       /* layout << 4 | T */
			u8 class;
			u8 flags;
		};
	};
};

struct compact {
	u64 bytes;
	u32 count[32]; /* by raw S */
};

/* The codes of an octave, 64 buckets of csig.DistIndex, that are in one segment of codes: between two splits. */
struct wide {
	u64 bytes;
	u64 sum; /* of codes */
	u32 count;
	u32 min, max;
	u32 pad;
	u32 bucket[64];
};

/* Entries of buffers are taken one after the other, so that those in use are close together: a processor remembers few pages.
 * An index finds them: a slot is 0, or the upper half of a key's hash and the entry's number from 1 on. The entries of both
 * buffers follow each other in one array, and so do their indexes. */
struct compact_entry {
	struct key key;
	struct compact v;
	u64 pad[3];
};

struct wide_entry {
	struct key key;
	struct wide v;
};

struct counters {
	u64 packets, bytes;     /* with CSIG, that were counted */
	u64 odd[ODD_REASONS];
	u64 empty, invalid;     /* reflections which say that the path has no CSIG */
	u64 overflow;           /* observations without an entry, counted in the overflow map */
	u64 lost;               /* those that had no room there either */
};

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct compact_entry);
} compacts SEC(".maps");

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct wide_entry);
} wides SEC(".maps");

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, u64);
} compact_index SEC(".maps"), wide_index SEC(".maps");

/* Entries of a buffer that were taken; more than room where that was not enough. */
struct taken {
	u32 compact, wide;
};

struct {
	UINT(type, MAP_ARRAY);
	UINT(max_entries, 2);
	UINT(map_flags, MMAPABLE);
	TYPE(key, u32);
	TYPE(value, struct taken);
} taken SEC(".maps");

/* Where observations are counted that have no room in a buffer. */
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

/* An address whose classes a CPU remembers: the one as a source << 32 | the one as a destination. */
struct known {
	u64 hi, lo;
	u64 classes;
	u64 there;
};

enum { MAX_KNOWN = 1 << 12 };

struct {
	UINT(type, MAP_PERCPU_ARRAY);
	UINT(max_entries, MAX_KNOWN);
	TYPE(key, u32);
	TYPE(value, struct known);
} known SEC(".maps");

/* The last reflection of a flow and signal type. */
struct flow {
	u64 src[2], dst[2];
	u32 ports;
	u8 type;
	u8 acked;
	u16 pad;
};

struct said {
	u64 data; /* data fields */
	u64 ack;  /* newest acknowledgement number, or the time that counted last */
};

struct {
	UINT(type, MAP_LRU_HASH);
	UINT(max_entries, 1 << 16);
	TYPE(key, struct flow);
	TYPE(value, struct said);
} reflected SEC(".maps");

/* Where a reader of options is. It is in memory whose contents the verifier does not follow, so that the
 * loops over it are verified once. */
struct options {
	u32 at, end;
	u32 own;            /* length of the option as its encoding counts it */
	u32 empty, invalid; /* of the option, by encodings that it does not fit */
	u32 several;        /* reflections */
	u32 wrong, done;
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

/* What a packet says. */
struct packet {
	struct fields tag, reflection;
	u32 ip;    /* offset of the IP header, 0 for none */
	u32 v6;
	u32 tcp;   /* offset of the TCP header */
	u32 empty, invalid;
};

/* Where a packet is read: its first bytes, which are copied. Masked offsets keep reads inside. */
struct scratch {
	u8 data[256 + 64];
	struct packet packet;
	struct options options;
	struct compact zeroes;  /* of a new overflow entry */
	u64 from, until;        /* the window at hand, TAI */
	u32 window;
	u32 code, bucket;       /* of the wide tag at hand */
	u64 now;                /* of the packet at hand, TAI */
	u32 bytes, buffer;      /* likewise */
	struct flow flow;
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
INLINE u64 raw64(struct scratch *m, u32 at) { return *(u64 *)&m->data[at & 0xff]; }

/* compact_fields and wide_fields are csig.Tag.Parse. */
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

/* try_encoding reads the option at o->at, of at least two bytes, by one encoding. It is 1 where the option
 * has it. */
static long try_encoding(u32 i, struct reading *r)
{
	struct scratch *m = r->m;
	struct options *o = &m->options;
	if (i >= encoding_count || i >= MAX_ENCODINGS)
		return 1;
	struct encoding *e = &encodings[i];
	u32 left = o->end - o->at, head = 2 + e->exid_len, n = byte(m, o->at + 1);
	if (e->kind != byte(m, o->at) || left < head)
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

/* reflection reads an option as decode.Decoder.reflection does, and returns the length that it counts, 0
 * when RFC 9293 says that. */
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

/* next_option reads one option and is 1 at the end of them. */
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

/* tcp_options reads the options behind a header. It is 0 for such as cannot be read. */
INLINE int tcp_options(struct scratch *m, u32 at, u32 end)
{
	struct reading r = {m};
	m->options = (struct options){.at = at, .end = end};
	loop(MAX_OPTIONS, next_option, &r, 0);
	return !m->options.wrong && (m->options.done || m->options.at >= end);
}

/* transport reads the header at an offset, of which len bytes are there. left is what IP says is
 * left of the packet. */
INLINE int transport(struct scratch *m, struct packet *p, u32 proto, u32 at, u32 len, u32 left)
{
	int done = p->tag.there ? FOUND : NONE;
	switch (proto) {
	case PROTO_TCP:
		break;
	case PROTO_UDP:
		if (at + 8 > len || left < 8)
			return ODD_CUT;
		u32 port = word(m, at + 2);
		if (odd_ports[port >> 3 & 0x1fff] >> (port & 7) & 1)
			return ODD_UDP;
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
		return done;
	}
	if (encoding_count == 0)
		return done;
	if (at + 20 > len || left < 20)
		return ODD_CUT;
	u32 header = byte(m, at + 12) >> 4 << 2;
	if (header < 20 || header > left)
		return ODD_CUT;
	if (at + header > len)
		return ODD_LONG;
	p->tcp = at;
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
	if (part & 0x1fff) /* a later fragment */
		return p->tag.there ? FOUND : NONE;
	if (at + header > len)
		return ODD_CUT;
	if (at + total < len)
		len = at + total; /* the rest is padding */
	return transport(m, p, byte(m, at + 9), at + header, len, total - header);
}

/* mapped tells whether an address is an IPv4 one in IPv6 (::ffff:0:0/96). */
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
		if (next == FRAGMENT && word(m, at + 2) & 0xfff8)
			return p->tag.there ? FOUND : NONE;
		if (next == ROUTING && byte(m, at + 2) == SEGMENTS)
			return ODD_TUNNEL;
		next = byte(m, at);
		at += n;
		left -= n;
	}
	return ODD_IP;
}

/* parse reads a packet of which the first len bytes are in m. */
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

/* read copies the first bytes of a packet and parses them. */
INLINE int read(struct __sk_buff *skb, struct scratch *m, struct packet *p)
{
	u32 len = skb->len;
	*p = (struct packet){};
	if (len < 14)
		return ODD_CUT;
	if (len > MAX_READ)
		len = MAX_READ;
	if (load_bytes(skb, 0, m->data, len))
		return ODD_CUT;
	int verdict = parse(skb, m, p, len);
	if (verdict == ODD_CUT && skb->len > MAX_READ)
		return ODD_LONG;
	return verdict;
}

/* classes_of are the classes of an address, which the CPU remembers: the trie takes several times as long. */
INLINE u64 classes_of(struct address *a)
{
	u64 hi = *(u64 *)&a->addr[0], lo = *(u64 *)&a->addr[8], mixed = (hi ^ lo) * 0x9e3779b97f4a7c15ull;
	u32 slot = mixed >> 52; /* log2(MAX_KNOWN) bits */
	struct known *k = map_lookup(&known, &slot);
	if (k && k->there && k->hi == hi && k->lo == lo)
		return k->classes;
	u64 *found = map_lookup(&classes, a), both = found ? *found : 0;
	if (k) {
		k->hi = hi;
		k->lo = lo;
		k->classes = both;
		k->there = 1;
	}
	return both;
}

/* end is the class or the prefix of an address as a source or as a destination. */
INLINE u64 end(struct scratch *m, struct packet *p, u32 at, u32 is_source)
{
	if (use_classes) {
		struct address a = {.bits = 128};
		if (p->v6) {
			*(u64 *)&a.addr[0] = raw64(m, at);
			*(u64 *)&a.addr[8] = raw64(m, at + 8);
		} else {
			a.addr[10] = a.addr[11] = 0xff;
			*(u32 *)&a.addr[12] = *(u32 *)&m->data[at & 0xff];
		}
		u64 both = classes_of(&a);
		return is_source ? both >> 32 : both & 0xffffffff;
	}
	if (p->v6)
		return raw64(m, at) & mask6;
	return *(u32 *)&m->data[at & 0xff] & mask4;
}

/* repeats tells whether a reflection repeats the one before it, as window.repeats does. */
INLINE int repeats(struct scratch *m, struct packet *p, u64 now)
{
	struct fields *f = &p->reflection;
	struct flow *flow = &m->flow;
	u32 acked = byte(m, p->tcp + 13) >> 4 & 1;
	if (!acked && udp_repeat == 0)
		return 0;
	if (p->v6) {
		flow->src[0] = raw64(m, p->ip + 8);
		flow->src[1] = raw64(m, p->ip + 16);
		flow->dst[0] = raw64(m, p->ip + 24);
		flow->dst[1] = raw64(m, p->ip + 32);
	} else {
		flow->src[0] = flow->dst[0] = 0;
		flow->src[1] = (u64)dword(m, p->ip + 12) << 32 | 0xffff;
		flow->dst[1] = (u64)dword(m, p->ip + 16) << 32 | 0xffff;
	}
	flow->ports = dword(m, p->tcp);
	flow->type = f->type;
	flow->acked = acked;
	flow->pad = p->v6;
	struct said said = {(u64)f->s << 32 | (u64)f->lm << 16 | f->reserved << 8 | f->trimmed, now};
	if (acked)
		said.ack = dword(m, p->tcp + 8);
	struct said *last = map_lookup(&reflected, flow);
	if (!last) {
		map_update(&reflected, flow, &said, 0);
		return 0;
	}
	int same = last->data == said.data;
	if (acked) {
		s32 fresh = (u32)said.ack - (u32)last->ack;
		if (fresh > 0 || fresh < -(1 << 26)) { /* further back: another connection has the ports */
			*last = said;
			return 0;
		}
		last->data = said.data;
		return same;
	}
	if (same && now - last->ack < udp_repeat)
		return 1;
	*last = said;
	return 0;
}

/* Slots of an index that are looked at for a key. */
enum { PROBES = 8 };

/* hash is that of a key. */
INLINE u64 hash(struct key *k)
{
	u64 h = seed ^ k->src * 0x9e3779b97f4a7c15ull;
	h = (h ^ h >> 32 ^ k->dst) * 0xd6e8feb86659fd93ull;
	h = (h ^ h >> 32 ^ (u64)k->window << 32 ^ k->s) * 0xa0761d6478bd642full;
	h = (h ^ h >> 32 ^ k->rest) * 0xe7037ed1a0b428dbull;
	return h ^ h >> 32;
}

/* take takes an entry for a key; none without room. */
INLINE struct key *take(void *entries, u32 *taken, struct key *k, u32 buffer, u32 *number)
{
	*number = __sync_fetch_and_add(taken, 1);
	u32 at = buffer * room + *number;
	struct key *e = *number < room ? map_lookup(entries, &at) : 0;
	if (e)
		*e = *k;
	return e;
}

/* find returns the entry of the key, which it makes; none without room. No other CPU has a key with the number of this one, but
 * all share the index. */
INLINE void *find(void *index, void *entries, u32 *taken, struct key *k, u32 buffer)
{
	u64 h = hash(k);
	struct key *own = 0;
	u32 number = 0;
#pragma clang loop unroll(disable)
	for (u32 i = 0; i < PROBES; i++) {
		u32 at = buffer * (slots + 1) + ((u32)h + i & slots);
		u64 *slot = map_lookup(index, &at);
		if (!slot)
			return 0;
		u64 v = *(volatile u64 *)slot;
		if (v == 0) {
			if (!own)
				own = take(entries, taken, k, buffer, &number);
			if (!own)
				return 0;
			if (__sync_val_compare_and_swap(slot, 0, h >> 32 << 32 | number + 1) == 0)
				return own;
			continue; /* another CPU was first */
		}
		if (v >> 32 != h >> 32)
			continue;
		at = buffer * room + (u32)v - 1;
		struct key *e = map_lookup(entries, &at);
		if (e && e->rest == k->rest && e->src == k->src && e->dst == k->dst && e->window == k->window && e->s == k->s)
			return e;
	}
	if (own)
		own->rest = 0; /* nobody would find it */
	return 0;
}

INLINE void add_compact(struct compact *c, u32 s, u32 bytes)
{
	c->bytes += bytes;
	c->count[s & 31]++;
}

INLINE void add_wide(struct wide *w, struct scratch *m, u32 bytes)
{
	w->bytes += bytes;
	w->sum += m->code;
	if (w->count++ == 0 || m->code < w->min)
		w->min = m->code;
	if (m->code > w->max)
		w->max = m->code;
	w->bucket[m->bucket & 63]++;
}

/* add_overflow counts an observation without ends, location and wide value. It is 0 without room. */
INLINE int add_overflow(struct scratch *m, u32 buffer, u32 s, u32 bytes)
{
	struct key *k = &m->key;
	k->src = k->dst = 0;
	k->s = 0;
	k->lm = 0;
	k->flags = OVERFLOW | USED;
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
	add_compact(c, s, bytes);
	return 1;
}

/* place finds where a wide tag is counted: its code, and in the key the octave and the segment of that. */
INLINE void place(struct scratch *m, struct signal *sig, u32 s)
{
	u32 code = (s & sig->mask) >> (sig->shift & 31), segment = 0, e = 0;
	if (code > sig->last)
		code = sig->last;
#pragma unroll
	for (u32 i = 0; i < MAX_SPLITS; i++)
		segment += code >= sig->splits[i];
#pragma unroll
	for (u32 i = 7; i < 20; i++) /* octaves above 128: csig.DistIndex */
		e += code >> i != 0;
	u32 index = e * 64 + (code >> e);
	m->code = code;
	m->bucket = index & 63;
	m->key.s = segment << 8 | index >> 6;
}

/* add counts an observation under the key. */
INLINE void add(struct scratch *m, struct counters *n, u32 buffer, struct fields *f, u32 bytes)
{
	struct taken *t = map_lookup(&taken, &buffer);
	if (!t)
		return;
	if (f->type & 0x20) {
		struct wide_entry *e = find(&wide_index, &wides, &t->wide, &m->key, buffer);
		if (e) {
			add_wide(&e->v, m, bytes);
			return;
		}
	} else {
		struct compact_entry *e = find(&compact_index, &compacts, &t->compact, &m->key, buffer);
		if (e) {
			add_compact(&e->v, f->s, bytes);
			return;
		}
	}
	n->overflow++;
	if (!add_overflow(m, buffer, f->type & 0x20 ? 0 : f->s, bytes))
		n->lost++;
}

/* count counts the tag or the reflection of a packet. It is a function of its own, since processors have little room for
 * instructions. */
static __attribute__((noinline)) int count(struct scratch *m, struct counters *n, u32 kind)
{
	struct packet *p = &m->packet;
	struct fields *f = kind ? &p->reflection : &p->tag;
	struct key *k = &m->key;
	u64 now = m->now;
	k->src = k->dst = 0;
	if (now < m->from || now >= m->until) {
		u64 window = (now - tai_offset) / resolution;
		m->window = window;
		m->from = window * resolution + tai_offset;
		m->until = m->from + resolution;
	}
	k->window = m->window;
	k->s = 0;
	k->lm = 0;
	k->cpu = cpu_number();
	k->kind = kind;
	k->type = f->type;
	k->flags = USED;
	k->class = VALUE;
	if (refuse[kind & 1]) {
		k->class = REFUSED;
	} else if (kind && repeats(m, p, now)) {
		k->class = REPEATED;
	} else {
		struct signal *sig = &signals[f->type & 63];
		if (f->s == sig->initial)
			k->class = UNTOUCHED;
		if (k->class == VALUE || locate_untouched)
			k->lm = f->lm;
		if (f->trimmed) { /* its value does not count, only whether it is the initial one */
			k->s = k->class == VALUE;
			k->class = TRIMMED;
			m->code = m->bucket = 0;
		} else if (f->type & 0x20) {
			place(m, sig, f->s);
		}
		if (p->ip) {
			u32 src = p->ip + (p->v6 ? 8 : 12), dst = p->ip + (p->v6 ? 24 : 16);
			k->src = end(m, p, kind ? dst : src, 1);
			k->dst = end(m, p, kind ? src : dst, 0);
			k->flags = p->v6 && !use_classes ? USED | HAS_ADDRS | IS_V6 : USED | HAS_ADDRS;
		}
	}
	add(m, n, m->buffer, f, m->bytes);
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
	int verdict = read(skb, m, p);
	if (verdict == NONE)
		return TCX_NEXT;
	if (verdict < ODD_REASONS) {
		n->odd[verdict]++;
		return TCX_NEXT;
	}
	/* The buffer comes before the time: user space takes the time before it changes the buffer, so that
	 * what is counted in the new one is later. */
	m->buffer = active & 1;
	m->now = tai_ns();
	m->bytes = skb->len + (skb->vlan_present ? 4 : 0);
	n->packets++;
	n->bytes += m->bytes;
	n->empty += p->empty;
	n->invalid += p->invalid;
	if (p->tag.there)
		count(m, n, 0);
	if (p->reflection.there)
		count(m, n, 1);
	return TCX_NEXT;
}

/* csig_odd is the filter of the ring that takes odd packets: exactly those that csig_count does not
 * count. */
SEC("socket") int csig_odd(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct scratch *m = map_lookup(&scratches, &zero);
	if (!m)
		return 0;
	return read(skb, m, &m->packet) < ODD_REASONS ? snap : 0;
}
