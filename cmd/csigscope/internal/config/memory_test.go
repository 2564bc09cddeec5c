package config

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/aggregate/window"
)

// TestMemoryAddsUp: for any limit, the bounds of a process add up to less, or it does not
// start.
func TestMemoryAddsUp(t *testing.T) {
	taps := func(n int) *Capture {
		c := new(Capture)
		for range n {
			c.Taps = append(c.Taps, Tap{Rings: 2})
		}
		return c
	}
	whole := MemoryUse{
		Capture: taps(2), Mirrors: []Mirror{{}}, Embedded: true, Writes: true, Exporters: true, API: true, Live: true, Shares: true,
	}
	started := 0
	for name, use := range map[string]MemoryUse{
		"collect": whole, "export": {Capture: taps(1), Spools: true}, "query serve": {Embedded: true, API: true},
		"server alone": {Writes: true, Exporters: true},
	} {
		for limit := uint64(256 << 20); limit <= 64<<30; limit += limit / 3 {
			for _, maxKeys := range []Quantity{0, 1 << 16, 1 << 21} {
				c := Default()
				c.Windows.MaxKeys = maxKeys
				m, err := c.Memory(limit, 0, use)
				if err != nil {
					if !strings.HasPrefix(err.Error(), "memory: ") {
						t.Errorf("%s: %v", name, err)
					}
					checkParts(t, err, use.streams() > 0)
					if least := leastLimit(t, err); least <= limit>>20 {
						t.Errorf("%s in %s: %v", name, mib(limit), err)
					} else if _, again := c.Memory(least<<20, 0, use); again != nil {
						t.Errorf("%s in %s: %v, yet %v", name, mib(limit), err, again)
					} else if _, less := c.Memory((least-2)<<20, 0, use); less == nil {
						t.Errorf("%s in %s: %v, and 2 MiB less are enough", name, mib(limit), err)
					}
					continue
				}
				started++
				keys, err := m.MaxSeries(&c, use)
				if err != nil {
					t.Errorf("%s in %s: starts, and has no room for keys: %v", name, mib(limit), err)
				}
				fixed, _ := use.parts()
				heap := sum(fixed) + uint64(use.streams()*float64(keys)*keyBytes)
				if use.Live {
					heap += uint64(m.LiveRows) * liveRowBytes
				}
				if use.API {
					heap += uint64(m.Answers)
				}
				if use.Exporters {
					heap += uint64(m.Buffered)
				}
				if most := uint64(headroom * float64(m.Go)); heap > most {
					t.Errorf("%s in %s: parts of %s in %s", name, mib(limit), mib(heap), mib(most))
				}
				if all := m.Go + m.Engine + use.outside(); all > limit {
					t.Errorf("%s in %s: %s in all", name, mib(limit), mib(all))
				}
				if use.Capture != nil && (maxKeys > 0 && keys != maxKeys.Int() || keys > max(window.DefaultMaxSeries, maxKeys.Int())) {
					t.Errorf("%s in %s: %d keys, configured %d", name, mib(limit), keys, maxKeys)
				}
				if limit > 32<<30 && (m.LiveRows != defaultLiveRows || m.Answers != defaultAnswers || m.Buffered != defaultBuffered) {
					t.Errorf("%s in %s: %+v, want the defaults", name, mib(limit), m)
				}
			}
		}
	}
	if started == 0 {
		t.Error("nothing starts")
	}
}

// leastLimit returns the least memory_limit that an error names, in MiB.
func leastLimit(t *testing.T, err error) (least uint64) {
	t.Helper()
	_, rest, _ := strings.Cut(err.Error(), "needs at least ")
	if _, err := fmt.Sscanf(rest, "%d MiB", &least); err != nil {
		t.Fatalf("no least limit in %q: %v", rest, err)
	}
	return least
}

// checkParts checks that the parts in an error add up to the limit for all defaults, and that it
// advises to lower keys only to a process that has some.
func checkParts(t *testing.T, err error, keys bool) {
	t.Helper()
	m := regexp.MustCompile(`and (\d+) MiB for its defaults \((.*)\): raise (.*)`).FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("no parts in %q", err)
	}
	full, _ := strconv.Atoi(m[1])
	for _, p := range regexp.MustCompile(` (\d+) MiB`).FindAllStringSubmatch(m[2], -1) {
		n, _ := strconv.Atoi(p[1])
		full -= n
	}
	if full != 0 || strings.Contains(m[3], "windows.max_keys") != keys {
		t.Errorf("%v: %d MiB are in no part", err, full)
	}
}

func TestMemoryOfEnvironment(t *testing.T) {
	c, use := Default(), MemoryUse{Capture: &Capture{Taps: []Tap{{}}}, Embedded: true, Writes: true}
	if m, err := c.Memory(0, 0, use); err != nil || m != (Memory{}) {
		t.Errorf("%+v, %v, want the parts' own bounds where there is no limit", m, err)
	}
	if m, err := c.Memory(0, 1<<30, use); err != nil || m.Go != 1<<30 || m.Engine != 0 {
		t.Errorf("%+v, %v, want Go's limit alone", m, err)
	}
	if m, err := c.Memory(4<<30, 1<<30, use); err != nil || m.Go != 1<<30 || m.Engine != mostEngine {
		t.Errorf("%+v, %v, want Go's limit as it is, and the engine beside it", m, err)
	}
	if _, err := c.Memory(1<<30, 1<<30, use); err == nil || !strings.Contains(err.Error(), "GOMEMLIMIT") {
		t.Errorf("%v, want no room for the engine", err)
	}
	if _, err := c.Memory(0, 100<<20, use); err == nil || !strings.HasPrefix(err.Error(), "memory: GOMEMLIMIT is 100 MiB: this command needs at least 462 MiB, and ") || !strings.Contains(err.Error(), "open windows") {
		t.Errorf("%v, want that bounds do not fit", err)
	}
}

// TestMemoryOfReload: a reload that adds taps divides the memory of windows again.
func TestMemoryOfReload(t *testing.T) {
	c := Default()
	use := func(taps int) MemoryUse { return MemoryUse{Capture: &Capture{Taps: make([]Tap, taps)}, Spools: true} }
	m, err := c.Memory(1<<30, 0, use(1))
	if err != nil {
		t.Fatal(err)
	}
	one, err := m.MaxSeries(&c, use(1))
	if err != nil {
		t.Fatal(err)
	}
	if two, err := m.MaxSeries(&c, use(2)); err != nil || two != one/2 {
		t.Errorf("%d keys, %v, want half of %d", two, err, one)
	}
	if n, err := m.MaxSeries(&c, use(64)); err == nil {
		t.Errorf("%d keys, want an error", n)
	}
	c.Windows.MaxKeys = Quantity(one)
	if n, err := m.MaxSeries(&c, use(2)); err == nil {
		t.Errorf("%d keys, want an error: as many are configured", n)
	}
}

// TestMemoryIsDocumented: the README of cmd names the bytes that the division counts with.
func TestMemoryIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(text)), " ") // lines may end anywhere
	for _, want := range []string{
		fmt.Sprintf("(%d,%03d bytes a key)", keyBytes/1000, keyBytes%1000), fmt.Sprintf("(%d,%03d bytes a row", liveRowBytes/1000, liveRowBytes%1000),
		fmt.Sprintf("tags that transports send](../ingest/README.md#a-transport-that-has-the-tags-itself) (%d MiB)", tagsBytes>>20),
	} {
		if !strings.Contains(words, want) {
			t.Errorf("cmd/README.md lacks %q", want)
		}
	}
}
