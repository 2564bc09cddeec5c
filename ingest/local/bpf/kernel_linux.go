package bpf

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// counter holds the programs under one configuration, with their maps. The counting program writes to one of two
// buffers while user space reads the other one; swap exchanges them. Swaps need not match windows, because each key has
// the number of its window.
type counter struct {
	collection *ebpf.Collection
	program    *ebpf.Program // counts
	odd        *ebpf.Program // the filter that passes odd packets
	ends       ends
	secrets    secrets
	signals    [csig.NumLayouts * 16]signal
	resolution int64         // length of the finest windows, ns
	readings   uint32        // their lowest bit is the buffer in use
	first      [2]uint32     // first_buckets: a mask of the buckets to try first, by buffer
	swapped    int64         // time of the last swap, Unix ns
	tai        time.Duration // the program's tai_offset
	moved      time.Duration // how far the last swap changed it

	// Both buffers, one after the other, in memory that is shared with the kernel.
	entries  []entry
	index    []bucket
	taken    []uint64 // number of entries in use, by buffer
	mapped   [][]byte
	overflow [2]*ebpf.Map // of each buffer

	keys   []mapKey // a batch of overflow
	values []overflowCounts
	list   []window.Counted // the result of drain

	ring    *ringbuf.Reader // of samples
	record  ringbuf.Record
	sampled []window.Sampled // the result of drainSamples
	ahead   []window.Sampled // of observations in the buffer that the program uses

	read counters // of the last call of frames
}

// newCounter loads the programs for the settings. It takes over the reflections that the previous counter, if any,
// remembers, so that repeats are recognized across a change of the settings.
func newCounter(s *window.Settings, tap window.Tap, keys int, snap uint32, before *counter) (*counter, error) {
	own := newSecrets()
	if before != nil {
		own = before.secrets // digests of reflections stay the same
	}
	spec, e, err := compile(s, tap, keys, own)
	if err != nil {
		return nil, err
	}
	tai, err := taiOffset(0)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(spec.Variables["tai_offset"].Set(uint64(tai)), spec.Variables["snap"].Set(snap)); err != nil {
		return nil, fmt.Errorf("set variables: %w", err)
	}
	c := &counter{
		ends: e, secrets: own, first: firstBuckets(keys, keys), resolution: int64(s.Finest()), swapped: time.Now().UnixNano(), tai: tai,
		keys: make([]mapKey, overflowKeys), values: make([]overflowCounts, overflowKeys),
	}
	if c.signals, err = signalsOf(s); err != nil {
		return nil, err
	}
	var options ebpf.CollectionOptions
	if before != nil {
		options.MapReplacements = map[string]*ebpf.Map{"reflected": before.collection.Maps["reflected"]}
	}
	if err := c.makeOverflow(spec); err != nil {
		return nil, errors.Join(explain(err), c.close())
	}
	if c.collection, err = ebpf.NewCollectionWithOptions(spec, options); err != nil {
		return nil, errors.Join(explain(loadError(err)), c.close())
	}
	if err := c.mapBuffers(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	if c.ring, err = ringbuf.NewReader(c.collection.Maps["samples"]); err != nil {
		return nil, errors.Join(fmt.Errorf("map samples: %w", err), c.close())
	}
	c.ring.SetDeadline(time.Unix(1, 0)) // it never waits
	c.program, c.odd = c.collection.Programs[countProgram], c.collection.Programs[oddProgram]
	return c, nil
}

// makeOverflow makes the maps of observations for which a buffer has no room.
func (c *counter) makeOverflow(spec *ebpf.CollectionSpec) error {
	outer := spec.Maps["overflows"]
	for i := range c.overflow {
		m, err := ebpf.NewMap(outer.InnerMap)
		if err != nil {
			return fmt.Errorf("make map: %w", err)
		}
		c.overflow[i] = m
		outer.Contents = append(outer.Contents, ebpf.MapKV{Key: uint32(i), Value: m})
	}
	return nil
}

// mapBuffers maps the kernel's buffers into this process.
func (c *counter) mapBuffers() (err error) {
	if c.entries, err = mapArray[entry](c, "entries"); err != nil {
		return err
	}
	if c.index, err = mapArray[bucket](c, "index_buckets"); err != nil {
		return err
	}
	c.taken, err = mapArray[uint64](c, "taken")
	return err
}

// mapArray maps an array of the collection into this process.
func mapArray[T any](c *counter, name string) ([]T, error) {
	m := c.collection.Maps[name]
	var entry T
	n := int(m.MaxEntries())
	b, err := unix.Mmap(m.FD(), 0, n*int(unsafe.Sizeof(entry)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	c.mapped = append(c.mapped, b)
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

func (c *counter) close() error {
	var failed []error
	for _, b := range c.mapped {
		failed = append(failed, unix.Munmap(b))
	}
	c.mapped, c.entries, c.index, c.taken = nil, nil, nil, nil
	if c.ring != nil {
		failed = append(failed, c.ring.Close())
	}
	for _, m := range c.overflow {
		if m != nil {
			failed = append(failed, m.Close())
		}
	}
	if c.collection != nil {
		c.collection.Close()
	}
	return errors.Join(failed...)
}

// swap makes the program count in the other buffer. It returns the number of the buffer that the program has left, and the
// result of frames. All packets before the new c.swapped are in that buffer or were read before. ended says that the program
// is no longer attached.
func (c *counter) swap(ended bool) (left uint32, since counters, err error) {
	left = c.readings & 1
	at := time.Now().UnixNano()
	if err := c.followTAI(); err != nil {
		return left, since, err
	}
	c.readings++
	if err := c.collection.Variables["first_buckets"].Set(c.first); err != nil {
		return left, since, fmt.Errorf("size index: %w", err)
	}
	if err := c.collection.Variables["readings"].Set(c.readings); err != nil {
		return left, since, fmt.Errorf("change buffer: %w", err)
	}
	// Both buffers share the counters of packets. The wait takes milliseconds, in which other packets come to the other buffer.
	if !ended {
		if since, err = c.frames(); err != nil {
			return left, since, err
		}
	}
	// When a map in a map is replaced (here by itself), the kernel waits for running programs. Afterwards none of them
	// uses the previous value of readings.
	if err := c.collection.Maps["overflows"].Put(left, c.overflow[left]); err != nil {
		return left, since, fmt.Errorf("wait for programs: %w", err)
	}
	c.swapped = at
	if ended { // also packets that the program was counting
		since, err = c.frames()
	}
	return left, since, err
}

// followTAI gives the program the present offset of TAI. It changes when a time service sets it, often a while after the
// start of the host, and at leap seconds.
func (c *counter) followTAI() error {
	tai, err := taiOffset(c.tai)
	if err != nil {
		return err
	}
	c.moved, c.tai = tai-c.tai, tai
	if c.moved == 0 {
		return nil
	}
	if err := c.collection.Variables["tai_offset"].Set(uint64(tai)); err != nil {
		return fmt.Errorf("set tai_offset: %w", err)
	}
	return nil
}

// drain empties a buffer that the program has left and returns its counts. The list is valid until the next call.
func (c *counter) drain(buffer uint32) ([]window.Counted, error) {
	c.list = c.list[:0]
	taken := &c.taken[buffer]
	entries := half(c.entries, buffer, *taken)
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Flags&used == 0: // another CPU took its slot
		case e.wide():
			c.addWide(e)
		default:
			c.addCompact(&e.mapKey, e.S<<2, e.Bytes, e.Count[:])
		}
	}
	if len(entries) > 0 {
		clear(entries)
		clear(half(c.index, buffer, math.MaxUint64))
		c.first[buffer] = firstBuckets(len(entries), len(c.entries)/2)[buffer]
		*taken = 0
	}
	var cursor ebpf.MapBatchCursor
	for {
		n, err := c.overflow[buffer].BatchLookupAndDelete(&cursor, c.keys, c.values, nil)
		for i := range n {
			c.addCompact(&c.keys[i], 0, c.values[i].Bytes, c.values[i].Count[:])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return c.list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read overflow: %w", err)
		}
	}
}

// drainSamples returns the samples of observations in a buffer that the program has left. The list is valid until the next
// call. Samples that were written since the swap belong to observations which have not been read yet: the next call for
// their buffer returns them.
func (c *counter) drainSamples(buffer uint32) ([]window.Sampled, error) {
	c.sampled, c.ahead = c.ahead, c.sampled[:0]
	for range c.ring.BufferSize() / sampleBytes { // at most one ring full, even if the program writes faster than this reads
		err := c.ring.ReadInto(&c.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read samples: %w", err)
		}
		if len(c.record.RawSample) == int(unsafe.Sizeof(sample{})) {
			s := (*sample)(unsafe.Pointer(&c.record.RawSample[0]))
			list := &c.sampled
			if uint32(s.Buffer) != buffer {
				list = &c.ahead
			}
			*list = append(*list, c.observationOf(s))
		}
	}
	return c.sampled, nil
}

func (c *counter) observationOf(s *sample) (o window.Sampled) {
	o.Kind, o.TimeNS = decode.Tag+decode.Kind(s.Kind&1), c.timeOf(s.Window)
	o.Tag = csig.Tag{Layout: csig.LayoutAt(int(s.Type & 63 >> 4)), T: s.Type & 15, S: s.S, LM: s.LM}
	o.Bytes, o.N = s.Bytes, s.Every
	o.SrcPort, o.DstPort, o.Proto, o.Flags = s.SrcPort, s.DstPort, s.Proto, decode.HasAddrs
	if s.Flags&isV6 != 0 {
		o.Src, o.Dst = s.Src, s.Dst
	} else {
		o.Src, o.Dst = netip.AddrFrom4([4]byte(s.Src[:])).As16(), netip.AddrFrom4([4]byte(s.Dst[:])).As16()
	}
	return o
}

// half returns the elements of a buffer, at most n.
func half[T any](list []T, buffer uint32, n uint64) []T {
	all := len(list) / 2
	return list[int(buffer)*all:][:min(uint64(all), n)]
}

// addCompact adds the counts of consecutive raw S, starting with first. The first observation of them gets all bytes.
func (c *counter) addCompact(k *mapKey, first uint32, bytes uint64, counts []uint32) {
	o := c.observation(k)
	for s, n := range counts {
		if n > 0 {
			o.Tag.S, o.N, o.Bytes = first+uint32(s), uint64(n), bytes
			c.list = append(c.list, o)
			bytes = 0
		}
	}
}

func (c *counter) addWide(e *entry) {
	k := &e.mapKey
	o := c.observation(k)
	o.N, o.Bytes = uint64(e.Count[0]), e.Bytes
	// S says only whether the tag is untouched.
	if o.Tag.S = c.signals[k.Type&63].Initial; k.Class == classValue || k.Class == classTrimmed && k.S != 0 {
		o.Tag.S ^= 1
	}
	o.Codes = window.Codes{Bucket: k.S & 0xffff, Sum: e.Sum, Min: e.Count[1], Max: e.Count[2]}
	c.list = append(c.list, o)
}

// observation returns an observation with the fields of a key, without number, bytes and S.
func (c *counter) observation(k *mapKey) (o window.Counted) {
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

// timeOf returns the start of a window (Unix ns) from its number modulo 2^32: of all such windows the one nearest to the
// last swap. The program may have found it by an offset of TAI that had already changed: timeOf corrects that if it comes
// nearer to the swap.
func (c *counter) timeOf(number uint32) int64 {
	last := c.swapped / c.resolution
	at := (last + int64(int32(number-uint32(last)))) * c.resolution
	if corrected := at - int64(c.moved); distance(corrected, c.swapped) < distance(at, c.swapped) {
		return corrected
	}
	return at
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// frames returns the increase of the program's counters of packets since the last call.
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

// add adds o times a factor, modulo 2^64: a factor of ^uint64(0) subtracts.
func (c *counters) add(o *counters, times uint64) {
	c.Packets += times * o.Packets
	c.Bytes += times * o.Bytes
	c.Supers += times * o.Supers
	for i := range c.Odd {
		c.Odd[i] += times * o.Odd[i]
	}
	c.Empty += times * o.Empty
	c.Invalid += times * o.Invalid
	c.Overflow += times * o.Overflow
	c.Lost += times * o.Lost
	c.Unsampled += times * o.Unsampled
}

// taiOffset returns how far TAI, the clock of programs, is ahead of Unix time: a whole number of seconds. It returns last if
// the process was interrupted so long, or the clock was set, that the number is uncertain.
func taiOffset(last time.Duration) (time.Duration, error) {
	before := time.Now()
	var tai unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_TAI, &tai); err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return offsetOf(before.UnixNano(), tai.Nano(), time.Now().UnixNano(), last), nil
}

// offsetOf returns taiOffset from readings of both clocks, Unix time before and after TAI.
func offsetOf(before, tai, after int64, last time.Duration) time.Duration {
	offset := time.Duration(tai - before).Round(time.Second)
	if time.Duration(tai-after).Round(time.Second) != offset {
		return last
	}
	return offset
}
