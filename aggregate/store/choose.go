package store

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxChoices bounds the values that a filter may list.
const maxChoices = 10_000

// FlowQuestion asks for the flows of one signal with the most heavy observations, over the
// windows that start in [From, To). Empty fields match all flows, including the rows that sum up
// the flows without a name.
type FlowQuestion struct {
	Signal               csig.Signal
	From, To             time.Time
	Resolution           time.Duration       // of the windows: 1 s, the default, or 1 min
	SrcGroups, DstGroups []aggregate.GroupID // any of them
	// Src and Dst are prefixes of the addresses; the zero Prefix matches all. An IPv4 prefix and
	// its IPv4-mapped IPv6 prefix are the same. Other IPv6 prefixes match no IPv4 address.
	Src, Dst netip.Prefix
	Kind     decode.Kind // 0: both
	// Locations match the location named by most of a flow's heavy observations; empty matches
	// all.
	Locations []aggregate.LocationID
	MinHeavy  uint64
	Limit     int // maximum number of flows, 1 or more
}

// FindingQuestion asks for findings that overlap [From, To). Empty fields match all.
type FindingQuestion struct {
	From, To                   time.Time
	Kinds, Severities, Devices []string // any of them
	Locations                  []aggregate.LocationID
	Limit                      int // maximum number of findings, 1 or more
}

// where is the condition on rows of the view top_flows.
func (q *FlowQuestion) where() (string, error) {
	c := conditions{}
	anyOf(&c, "src_group", q.SrcGroups, groupNumber)
	anyOf(&c, "dst_group", q.DstGroups, groupNumber)
	c.within("src", q.Src)
	c.within("dst", q.Dst)
	if q.Kind != 0 {
		c.add("source_kind = %d", uint8(q.Kind))
	}
	if q.MinHeavy > 0 {
		c.add("heavy >= %d", q.MinHeavy)
	}
	if len(q.Locations) > 0 {
		c.add("location_heavy > 0")
		anyOf(&c, "location", q.Locations, locationNumber)
	}
	return c.all()
}

func (q *FindingQuestion) where() (string, error) {
	c := conditions{}
	anyOf(&c, "kind", q.Kinds, literal)
	anyOf(&c, "toString(severity)", q.Severities, literal)
	anyOf(&c, "device", q.Devices, literal)
	anyOf(&c, "location", q.Locations, locationNumber)
	return c.all()
}

func groupNumber(id aggregate.GroupID) string { return fmt.Sprint(uint64(id)) }

func locationNumber(id aggregate.LocationID) string { return fmt.Sprint(uint64(id)) }

// conditions is a list of SQL conditions, joined by AND.
type conditions struct {
	list []string
	err  error
}

func (c *conditions) add(format string, args ...any) {
	c.list = append(c.list, fmt.Sprintf(format, args...))
}

func (c *conditions) all() (string, error) {
	if len(c.list) == 0 {
		return "1", c.err
	}
	return strings.Join(c.list, " AND "), c.err
}

// anyOf requires the column to be one of the values, if there are any.
func anyOf[T any](c *conditions, column string, values []T, text func(T) string) {
	if len(values) == 0 {
		return
	}
	if len(values) > maxChoices {
		c.err = fmt.Errorf("%w: %d values of %s: expected at most %d", ErrQuestion, len(values), column, maxChoices)
		return
	}
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = text(v)
	}
	c.add("%s IN (%s)", column, strings.Join(list, ", "))
}

// within requires an address in the prefix. The column has IPv4 addresses as IPv4-mapped ones. The
// sums of unnamed flows have no address.
func (c *conditions) within(column string, p netip.Prefix) {
	if !p.IsValid() {
		return
	}
	first, bits := p.Masked().Addr(), p.Bits()
	if first.Is4() {
		bits += 96
	}
	low := first.As16()
	high := low
	for i := bits; i < 128; i++ {
		high[i/8] |= 1 << (7 - i%8)
	}
	c.add("%[1]s >= toIPv6('%[2]s') AND %[1]s <= toIPv6('%[3]s') AND NOT (%[4]s)",
		column, netip.AddrFrom16(low), netip.AddrFrom16(high), unnamed)
	if bits < 96 {
		c.add("NOT (%[1]s >= toIPv6('::ffff:0.0.0.0') AND %[1]s <= toIPv6('::ffff:255.255.255.255'))", column)
	}
}

// literal quotes text as an SQL string.
func literal(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\x00", `\0`).Replace(text) + "'"
}
