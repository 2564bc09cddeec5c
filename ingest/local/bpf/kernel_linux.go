package bpf

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// counter is the programs in the kernel under one configuration, with their maps. The program that counts
// writes to one of two buffers, and user space reads the other one: that is what swap exchanges.
//
// Keys have the number of their window, so that it does not matter in which buffer a packet is counted, or
// when buffers are read.
type counter struct {
	collection *ebpf.Collection
	program    *ebpf.Program // that counts
	odd        *ebpf.Program // that filters odd packets
	ends       ends
	signals    [csig.NumLayouts * 16]signal
	resolution int64
	active     uint32
	buffers    [2]buffer
	swapped    int64 // when, Unix ns

	keys     []key // where batches of entries are read
	compacts []compactCounts
	wides    []wideCounts
	list     []window.Counted // what drain returns
	read     counters         // so far, of which frames has returned the increase
}

// buffer is the maps that a packet is counted in.
type buffer struct {
	compact, wide                 *ebpf.Map
	compactOverflow, wideOverflow *ebpf.Map
}

// readBatch is how many entries are read in a system call.
const readBatch = 4096

// newCounter loads the programs for the settings. Reflections that an earlier one remembers are known to it.
func newCounter(s *window.Settings, tap window.Tap, keys int, snap uint32, before *counter) (*counter, error) {
	spec, e, err := compile(s, tap, keys)
	if err != nil {
		return nil, err
	}
	ahead, err := taiOffset()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(spec.Variables["tai_offset"].Set(uint64(ahead)), spec.Variables["snap"].Set(snap)); err != nil {
		return nil, fmt.Errorf("set variables: %w", err)
	}
	c := &counter{
		ends: e, resolution: int64(s.Finest()), swapped: time.Now().UnixNano(),
		keys: make([]key, readBatch), compacts: make([]compactCounts, readBatch), wides: make([]wideCounts, readBatch),
	}
	if c.signals, err = signalsOf(s); err != nil {
		return nil, err
	}
	var options ebpf.CollectionOptions
	if before != nil {
		options.MapReplacements = map[string]*ebpf.Map{"reflected": before.collection.Maps["reflected"]}
	}
	if err := c.makeBuffers(spec); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.collection, err = ebpf.NewCollectionWithOptions(spec, options); err != nil {
		return nil, errors.Join(loadError(err), c.close())
	}
	c.program, c.odd = c.collection.Programs[countProgram], c.collection.Programs[oddProgram]
	return c, nil
}

// makeBuffers makes the maps of both buffers.
func (c *counter) makeBuffers(spec *ebpf.CollectionSpec) error {
	for i := range c.buffers {
		b := &c.buffers[i]
		for name, to := range map[string]**ebpf.Map{
			"compacts": &b.compact, "wides": &b.wide, "compact_overflow": &b.compactOverflow, "wide_overflow": &b.wideOverflow,
		} {
			m, err := ebpf.NewMap(spec.Maps[name].InnerMap)
			if err != nil {
				return fmt.Errorf("make map: %w", err)
			}
			*to = m
			spec.Maps[name].Contents = append(spec.Maps[name].Contents, ebpf.MapKV{Key: uint32(i), Value: m})
		}
	}
	return nil
}

func (c *counter) close() error {
	var failed []error
	for i := range c.buffers {
		b := &c.buffers[i]
		for _, m := range [...]*ebpf.Map{b.compact, b.wide, b.compactOverflow, b.wideOverflow} {
			if m != nil {
				failed = append(failed, m.Close())
			}
		}
	}
	if c.collection != nil {
		c.collection.Close()
	}
	return errors.Join(failed...)
}

// swap has the program count in the other buffer, and returns the one that it has left. All packets up to
// swapped are in that one or in those before.
func (c *counter) swap() (*buffer, error) {
	old := c.active
	at := time.Now().UnixNano()
	c.active = 1 - old
	if err := c.collection.Variables["active"].Set(c.active); err != nil {
		return nil, fmt.Errorf("change buffer: %w", err)
	}
	if err := c.wait(old); err != nil {
		return nil, err
	}
	c.swapped = at
	return &c.buffers[old], nil
}

// wait waits until no program runs that may know an earlier value of active: the kernel does so when a map in
// a map is exchanged, here for itself.
func (c *counter) wait(buffer uint32) error {
	if err := c.collection.Maps["compacts"].Put(buffer, c.buffers[buffer].compact); err != nil {
		return fmt.Errorf("wait for programs: %w", err)
	}
	return nil
}

// drain empties a buffer that no program counts in. The list is valid until the next call.
func (c *counter) drain(b *buffer) ([]window.Counted, error) {
	c.list = c.list[:0]
	for _, m := range [...]*ebpf.Map{b.compact, b.compactOverflow} {
		if err := c.drainMap(m, c.compacts, c.addCompact); err != nil {
			return nil, err
		}
	}
	for _, m := range [...]*ebpf.Map{b.wide, b.wideOverflow} {
		if err := c.drainMap(m, c.wides, c.addWide); err != nil {
			return nil, err
		}
	}
	return c.list, nil
}

// drainMap empties a map into values, and calls add for each entry by its place there.
func (c *counter) drainMap(m *ebpf.Map, values any, add func(i int)) error {
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookupAndDelete(&cursor, c.keys, values, nil)
		for i := range n {
			add(i)
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read counts: %w", err)
		}
	}
}

func (c *counter) addCompact(i int) {
	k, v := &c.keys[i], &c.compacts[i]
	o := c.observation(k)
	bytes := v.Bytes
	for s, n := range v.Count {
		if n > 0 {
			o.Tag.S, o.N, o.Bytes = uint32(s), uint64(n), bytes
			c.list = append(c.list, o)
			bytes = 0
		}
	}
}

func (c *counter) addWide(i int) {
	k, v := &c.keys[i], &c.wides[i]
	o := c.observation(k)
	o.N, o.Bytes = uint64(v.Count), v.Bytes
	// Whether it is untouched is all that its S says.
	if o.Tag.S = c.signals[k.Type&63].Initial; k.Class == classValue || k.Class == classTrimmed && k.S != 0 {
		o.Tag.S ^= 1
	}
	const page, bits = 16, 0xff
	o.Codes = window.CodeCounts{First: k.S & bits * page, Buckets: v.Buckets, Sum: v.Sum, Min: v.Min, Max: v.Max}
	c.list = append(c.list, o)
}

// observation is what a key stands for.
func (c *counter) observation(k *key) (o window.Counted) {
	o.Kind = decode.Tag + decode.Kind(k.Kind)
	o.Tag = csig.Tag{Layout: csig.LayoutAt(int(k.Type >> 4)), T: k.Type & 15, LM: k.LM, D: k.Class == classTrimmed}
	o.TimeNS = c.timeOf(k.Window)
	switch {
	case k.Class == classRepeated:
		o.As = window.AsRepeat
	case k.Flags&overflowed != 0:
		o.As = window.AsOverflow
	default:
		src, dst := c.ends.of(k)
		if src.IsValid() && dst.IsValid() {
			o.Src, o.Dst = src.As16(), dst.As16()
			if o.Kind == decode.Reflection { // the packet's own ends are the other way round
				o.Src, o.Dst = o.Dst, o.Src
			}
			o.Flags = decode.HasAddrs
		}
	}
	return o
}

// timeOf is the start of a window, of which the number is known modulo 2^32: it is one near the last swap.
func (c *counter) timeOf(number uint32) int64 {
	last := c.swapped / c.resolution
	return (last + int64(int32(number-uint32(last)))) * c.resolution
}

// frames returns what the program has counted of frames since the last call.
func (c *counter) frames() (counters, error) {
	var perCPU []counters
	if err := c.collection.Maps["counts"].Lookup(uint32(0), &perCPU); err != nil {
		return counters{}, fmt.Errorf("read counters: %w", err)
	}
	var sum counters
	for i := range perCPU {
		sum.add(&perCPU[i], 1)
	}
	since := sum
	since.add(&c.read, ^uint64(0))
	c.read = sum
	return since, nil
}

// add adds o as many times; the largest number is -1.
func (c *counters) add(o *counters, times uint64) {
	c.Packets += times * o.Packets
	c.Bytes += times * o.Bytes
	for i := range c.Odd {
		c.Odd[i] += times * o.Odd[i]
	}
	c.Empty += times * o.Empty
	c.Invalid += times * o.Invalid
	c.Overflow += times * o.Overflow
	c.Lost += times * o.Lost
}

// taiOffset is how far atomic time, which programs have, is ahead of Unix time: a whole number of seconds.
func taiOffset() (time.Duration, error) {
	var tai, unixTime unix.Timespec
	if err := errors.Join(unix.ClockGettime(unix.CLOCK_TAI, &tai), unix.ClockGettime(unix.CLOCK_REALTIME, &unixTime)); err != nil {
		return 0, fmt.Errorf("read clocks: %w", err)
	}
	return time.Duration(tai.Nano() - unixTime.Nano()).Round(time.Second), nil
}
