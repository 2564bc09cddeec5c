package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/local"
)

// Upper bounds of the memory of each part, in bytes. Each is above the measured maximum.
const (
	processBytes = 64 << 20  // the runtime, the code, names of the fabric
	writerBytes  = 210 << 20 // rows on their way to the store's log, and the next batches
	topBytes     = 20 << 20  // top bottlenecks
	spoolBytes   = 32 << 20  // items between an exporter's spool and its collector
	sharedBytes  = 80 << 20  // windows that wait for peers, whose queues share the same bytes
	namesBytes   = 64 << 20  // names from exporters' descriptions
	tagsBytes    = 128 << 20 // a request with observations, and their aggregation; from the first on
	apiBytes     = 256 << 20 // answers and tables in progress, names, and 128 stalled watchers
	blockBytes   = 256 << 10 // block of a ring
	defaultRing  = 256       // blocks
	mirrorBytes  = 64 << 20  // packets that wait for a mirror, by default

	keyBytes     = 1200 // a key in all open windows, and its rows until they are durable
	liveRowBytes = 1400 // a row of live windows, also provisional, in their revision log too, and its answers

	defaultLiveRows = 1 << 20
	defaultAnswers  = 256 << 20 // answers cached for identical requests
	defaultBuffered = 256 << 20 // running requests of exporters

	// leastPart is the smallest useful fraction of a default: below it a process does not
	// start.
	leastPart = 1. / 16
	// headroom is the fraction of Go's limit that the bounds may add up to. The rest is for
	// garbage: without it, garbage collection would take all of the CPU time.
	headroom = 0.8

	leastEngine = 512 << 20
	mostEngine  = 2 << 30 // the engine's own default
)

// MemoryUse lists the parts that a process has.
type MemoryUse struct {
	Capture   *Capture // nil: no taps
	Mirrors   []Mirror
	Embedded  bool // the process may start the embedded engine
	Writes    bool // rows go to a store
	Spools    bool // windows go to a collector
	Exporters bool // accepts exporters
	API       bool // serves the API
	Live      bool // keeps the last windows in memory
	Shares    bool // windows go to other collectors
}

// Memory holds the maximum size of each part of a process, so that all of them fit under one
// limit. Zero values mean the parts' own defaults.
type Memory struct {
	Go       uint64 // limit of the Go heap, bytes
	Engine   uint64 // limit of the embedded engine, bytes
	LiveRows int    // table.MemoryOptions.MaxRows
	Answers  int    // api.Config.CacheBytes
	Buffered int    // remote.Limits.MaxBuffered
	Windows  uint64 // of all streams, bytes; see MaxSeries
}

// part is a consumer of memory with an upper bound.
type part struct {
	name  string
	bytes uint64
}

// Memory divides a limit, in bytes, between the parts of a process and the engine that it
// starts. inGo is the GOMEMLIMIT for the Go heap. Either may be 0 for none. Parts without a
// configured bound shrink by a common factor. The error lists the parts that do not fit.
func (c *Config) Memory(limit, inGo uint64, use MemoryUse) (m Memory, err error) {
	if limit == 0 && inGo == 0 {
		return m, nil
	}
	outside := use.outside()
	m.Go = inGo
	if use.Embedded && limit > 0 {
		m.Engine = min(max(limit/2, leastEngine), mostEngine)
		if inGo > 0 {
			m.Engine = min(mostEngine, less(limit, inGo+outside))
		}
		if m.Engine < leastEngine {
			return m, fmt.Errorf("memory: %s, of which GOMEMLIMIT takes %s and rings of taps %s, leave less than %s for the embedded engine: raise memory_limit or the cgroup's limit, or lower GOMEMLIMIT",
				mib(limit), mib(inGo), mib(outside), mib(leastEngine))
		}
	}
	if inGo == 0 {
		m.Go = less(limit, m.Engine+outside)
	}
	windows := uint64(use.streams() * float64(cmp.Or(c.Windows.MaxKeys.Int(), window.DefaultMaxSeries)) * keyBytes)
	fixed, shrinking := use.parts()
	room, whole, reserved := uint64(headroom*float64(m.Go)), sum(shrinking)+windows, sum(fixed)
	if c.Windows.MaxKeys > 0 {
		whole, reserved = whole-windows, reserved+windows
	}
	factor := min(1, float64(less(room, reserved))/float64(max(whole, 1)))
	if reserved > room || whole > 0 && factor < leastPart {
		heap := func(share float64) uint64 { return uint64((float64(reserved) + share*float64(whole)) / headroom) }
		return m, m.tooSmall(limit, inGo, outside, heap, slices.Concat(fixed, []part{{"open windows", windows}}, shrinking), use.streams())
	}
	of := func(bytes int) int { return int(factor * float64(bytes)) }
	m.LiveRows, m.Answers, m.Buffered = of(defaultLiveRows), of(defaultAnswers), of(defaultBuffered)
	m.Windows = less(room, sum(fixed)+uint64(factor*float64(sum(shrinking))))
	return m, nil
}

// parts returns the parts of fixed size and those that shrink with the limit, without open
// windows.
func (u *MemoryUse) parts() (fixed, shrinking []part) {
	fixed = []part{{"the process", processBytes}}
	add := func(to *[]part, has bool, name string, bytes uint64) {
		if has {
			*to = append(*to, part{name, bytes})
		}
	}
	add(&fixed, u.Writes, "rows on their way to the store", writerBytes+topBytes)
	add(&fixed, u.Spools, "the spool", spoolBytes)
	add(&fixed, u.Exporters, "names of exporters", namesBytes)
	add(&fixed, u.Exporters, "observations of exporters", tagsBytes)
	add(&fixed, u.Shares, "windows for peers", sharedBytes)
	add(&fixed, u.API, "answers and watchers", apiBytes)
	add(&shrinking, u.Live, "live windows", defaultLiveRows*liveRowBytes)
	add(&shrinking, u.API, "kept answers", defaultAnswers)
	add(&shrinking, u.Exporters, "requests of exporters", defaultBuffered)
	return fixed, shrinking
}

// streams returns the number of key limits: one for each ring and mirror, and a fraction for
// each session.
func (u *MemoryUse) streams() (n float64) {
	if u.Capture == nil {
		return 0
	}
	for i := range u.Capture.Taps {
		n += float64(cmp.Or(u.Capture.Taps[i].Rings.Int(), 1))
	}
	for i := range u.Mirrors {
		n += 1 + float64(u.Mirrors[i].maxSessions())/local.SessionShare
	}
	return n
}

// outside returns the memory of rings and sockets outside of the Go heap, in bytes.
func (u *MemoryUse) outside() (n uint64) {
	if u.Capture == nil {
		return 0
	}
	for i := range u.Capture.Taps {
		t := &u.Capture.Taps[i]
		n += uint64(cmp.Or(t.Rings.Int(), 1)) * uint64(cmp.Or(t.Blocks.Int(), defaultRing)) * blockBytes
	}
	for i := range u.Mirrors {
		n += uint64(cmp.Or(u.Mirrors[i].Buffer, mirrorBytes))
	}
	return n
}

// MaxSeries returns the maximum number of series of each stream under the configuration. A reload
// that adds taps divides the same memory again; the error says that it is too little.
func (m *Memory) MaxSeries(c *Config, use MemoryUse) (int, error) {
	wanted, n := c.Windows.MaxKeys.Int(), use.streams()
	if m.Windows == 0 || n == 0 {
		return wanted, nil
	}
	most := int(float64(m.Windows) / (n * keyBytes))
	if wanted == 0 && float64(most) >= leastPart*window.DefaultMaxSeries {
		return min(most, window.DefaultMaxSeries), nil
	}
	if wanted == 0 || wanted > most {
		return 0, fmt.Errorf("memory: the %s of open windows have room for %d keys in each of %g streams: take fewer taps, rings or sessions, lower windows.max_keys, or raise memory_limit and start again",
			mib(m.Windows), most, n)
	}
	return wanted, nil
}

// tooSmall returns the error for a limit under which the parts do not fit. heap returns the Go heap that
// they need with a share of the defaults. The parts that the error lists add up, with the free heap, to the
// limit that all defaults need.
func (m *Memory) tooSmall(limit, inGo, outside uint64, heap func(share float64) uint64, parts []part, streams float64) error {
	engine := func(beside uint64) uint64 { // Memory gives it half of the limit
		if m.Engine == 0 {
			return 0
		}
		return min(max(beside, leastEngine), mostEngine)
	}
	least, full := heap(leastPart), heap(1)
	text, remedy := "GOMEMLIMIT is "+mib(inGo), "GOMEMLIMIT"
	if inGo == 0 {
		text, remedy = "the limit is "+mib(limit), "memory_limit (by default 90 % of the cgroup's limit)"
		least, full = least+outside, full+outside
		parts = append(parts, part{"rings", outside}, part{"the embedded engine", engine(full)})
		least, full = least+engine(least), full+engine(full)
	} else if need := least + outside + engine(least+outside); limit > 0 && limit < need {
		remedy += " (and memory_limit to " + mibUp(need) + ")"
	}
	if streams > 0 {
		remedy += ", lower windows.max_keys, or take fewer taps and rings"
	}
	var names []string
	rest := upToMiB(full)
	for _, p := range parts {
		if p.bytes > 0 {
			names = append(names, p.name+" "+mibUp(p.bytes))
			rest -= upToMiB(p.bytes)
		}
	}
	return fmt.Errorf("memory: %s: this command needs at least %s, and %s for its defaults (%s, free heap %s): raise %s",
		text, mibUp(least), mibUp(full), strings.Join(names, ", "), mib(rest), remedy)
}

func sum(parts []part) (n uint64) {
	for _, p := range parts {
		n += p.bytes
	}
	return n
}

// less returns a-b, at least 0.
func less(a, b uint64) uint64 { return a - min(a, b) }

func mib(bytes uint64) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// mibUp is mib, rounded up.
func mibUp(bytes uint64) string { return mib(upToMiB(bytes)) }

func upToMiB(bytes uint64) uint64 { return (bytes + 1<<20 - 1) &^ (1<<20 - 1) }
