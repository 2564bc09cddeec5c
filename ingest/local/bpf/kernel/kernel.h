/* The part of the kernel's interface that csig.c uses. It is declared here and not included, so
 * that the object does not change with the headers of a distribution. */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* The fields of a packet that programs may read, up to the last one that is used. */
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
	u32 vlan_present;
	u32 vlan_tci;
	u32 vlan_proto;
	u32 unused[11];
	u32 data;
	u32 data_end;
	u32 unused_behind[23];
	u32 gso_size; /* 0 unless the packet was merged of several */
};

enum { TCX_NEXT = -1 }; /* passes the packet to the next program, or to the stack */

enum {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PERCPU_ARRAY = 6,
	MAP_LPM_TRIE = 11,
	MAP_ARRAY_OF_MAPS = 12,
	MAP_RINGBUF = 27,
	NO_PREALLOC = 1,
	MMAPABLE = 1024,
	NOEXIST = 1,
	NO_WAKEUP = 1,
};

/* Definitions of maps, which the loader reads from the types of these members. */
#define UINT(name, value) int(*name)[value]
#define TYPE(name, type) type *name
#define INNER(name, type) type *name[]

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u32 (*random)(void) = (void *)7;
static u32 (*cpu_number)(void) = (void *)8;
static long (*load_bytes)(const void *skb, u32 offset, void *to, u32 len) = (void *)26;
static u64 (*jiffies)(void) = (void *)118;
static void *(*ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*ring_submit)(void *record, u64 flags) = (void *)132;
static long (*loop)(u32 times, void *function, void *context, u64 flags) = (void *)181;
static u64 (*tai_ns)(void) = (void *)208;

#define be16(x) __builtin_bswap16(x)
#define be32(x) __builtin_bswap32(x)
