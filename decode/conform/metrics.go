package conform

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/csigscope/csigscope/decode/csig"
)

// maxSamples bounds the samples of all ports.
const maxSamples = 4 << 20

// Metrics are the measurements of a device's ports: its own counters, from which it computes the
// values in tags. A Judge writes to its Metrics (it counts packets), so two Judges must not
// share one at the same time.
type Metrics struct {
	slack   int64
	samples map[series][]sample // by time
	changes bool                // there are several samples of one series
	latest  int64               // time of any of these, Unix ns
	first   int64               // time of the first judged packet, Unix ns
	judged  uint64              // packets with a metric of their port at the time
	missing uint64              // packets without one
}

type series struct {
	port   string
	signal csig.Signal
}

// sample is a metric from a time on, until the next one.
type sample struct {
	from  int64  // Unix ns
	value uint64 // in stored units
	gone  bool   // the device had no metric
}

// ReadMetrics reads a CSV of counters with the header "time,port,signal,value": the time from which
// the value holds (RFC 3339 or Unix ns), the port as named in Config.Ports, the signal such as
// min_abw, and a quantity with its unit such as 12.5Gbps, or nothing where the device had no
// metric. The slack is the largest offset between the device's clock and the capture's. Memory is
// bounded; errors name the line.
func ReadMetrics(r io.Reader, slack time.Duration) (*Metrics, error) {
	m := &Metrics{slack: int64(max(slack, 0)), samples: make(map[series][]sample), latest: math.MinInt64, first: math.MaxInt64}
	in := csv.NewReader(r)
	in.FieldsPerRecord, in.ReuseRecord, in.TrimLeadingSpace = 4, true, true
	header, err := in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("read metrics: the file is empty: expected time,port,signal,value in line 1")
	case err != nil && !errors.Is(err, csv.ErrFieldCount):
		return nil, fmt.Errorf("read metrics: %w", err)
	case !slices.Equal(header, []string{"time", "port", "signal", "value"}):
		return nil, fmt.Errorf("read metrics: line 1: %q: expected time,port,signal,value", strings.Join(header, ","))
	}
	for n := 0; ; n++ {
		row, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read metrics: %w", err)
		}
		if n == maxSamples {
			return nil, fmt.Errorf("read metrics: more than %d samples: leave out the times before and after the captures", maxSamples)
		}
		if err := m.add(row); err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("read metrics: line %d: %w", line, err)
		}
	}
	for _, list := range m.samples {
		slices.SortStableFunc(list, func(a, b sample) int { return cmp.Compare(a.from, b.from) })
		if len(list) > 1 {
			m.changes, m.latest = true, max(m.latest, list[len(list)-1].from)
		}
	}
	return m, nil
}

// year2000 is Unix ns. Times of this century in s, ms or us are before it, if they are read as ns.
const year2000 = 946684800e9

// Outdated reports whether metrics that change with time all begin before the year 2000, and the
// packets that were judged by them later: their times have another unit than ns. latest is the last
// of these.
func (m *Metrics) Outdated() (latest time.Time, is bool) {
	return time.Unix(0, m.latest).UTC(), m.changes && m.latest < year2000 && m.first >= year2000 && m.first < math.MaxInt64
}

func (m *Metrics) add(row []string) error {
	from, err := parseTime(row[0])
	if err != nil {
		return err
	}
	signal, err := csig.ParseSignal(row[2])
	if err != nil {
		return err
	}
	s := sample{from: from, gone: row[3] == ""}
	if !s.gone {
		if s.value, err = csig.ParseQuantity(signal.Unit(), row[3]); err != nil {
			return err
		}
	}
	k := series{row[1], signal}
	m.samples[k] = append(m.samples[k], s)
	return nil
}

func parseTime(s string) (int64, error) {
	if ns, err := strconv.ParseInt(s, 10, 64); err == nil {
		return ns, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, fmt.Errorf("time %q: expected RFC 3339 or Unix time in nanoseconds", s)
	}
	ns := t.UnixNano()
	if !time.Unix(0, ns).Equal(t) {
		return 0, fmt.Errorf("time %q: expected a time from 1678 to 2262", s)
	}
	return ns, nil
}

// judges reports whether there are metrics of any of the ports, and not only of other times than
// those of its packets.
func (m *Metrics) judges(ports []string) bool {
	if m.judged == 0 && m.missing > 0 {
		return false
	}
	for k := range m.samples {
		if slices.Contains(ports, k.port) {
			return true
		}
	}
	return false
}

// judge reports whether the port's metric allows the tag after the device: any of the values that
// held around the time. from is the signal that the device compared with.
func (m *Metrics) judge(port string, table *csig.Table, from uint32, after *sighting, uninitialized bool) (Rule, bool) {
	list := m.samples[series{port, table.Signal()}]
	m.first = min(m.first, after.time)
	held := samplesWithin(list, after.time-m.slack, after.time+m.slack)
	if len(held) == 0 {
		m.missing++
		return 0, false
	}
	m.judged++
	was, is, looser := table.Code(from), table.Code(after.S), beyond(table, from)
	left := is == was && (!looser || after.S == from) // the device wrote nothing
	direction := table.Aggregation().Direction()
	var known, gone, explains, stays bool
	for _, s := range held {
		if s.gone {
			gone, stays = true, true
			continue
		}
		known = true
		own := table.Quantize(s.value)
		tighter := direction.Tighter(own, was) || looser || uninitialized && own == was && table.Untouched(from)
		explains = explains || tighter && own == is
		stays = stays || !direction.Tighter(own, was)
	}
	switch {
	case left && stays, explains:
		return 0, false
	case left:
		return MissedUpdate, true
	case gone && !known:
		return FailOpen, true
	}
	return WrittenValue, true
}

// samplesWithin returns the samples that held at some time between from and to, ns.
func samplesWithin(list []sample, from, to int64) []sample {
	begun := func(at int64) int { return sort.Search(len(list), func(i int) bool { return list[i].from > at }) }
	return list[max(begun(from)-1, 0):begun(to)]
}
