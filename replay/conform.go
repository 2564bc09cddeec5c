package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/decode/csig"
)

// ConformConfig configures Conform. Conform determines Judge's Prefix and Ports from the captures.
type ConformConfig struct {
	Judge conform.Config
	// Before are the captures in front of the device, After those behind it, one or more per port:
	// a pcapng file with several interfaces is several ports.
	Before []string
	After  []PortCapture
	// Fabric, unless nil, supplies the locator metadata of ports. Captures named like a port are
	// that port's; for other captures it supplies the ports by which packets may have left the
	// device.
	Fabric *fabric.Fabric
	// Progress, unless nil, is called with the bytes read in the present pass and the pass's total,
	// 0 in the first pass.
	Progress func(done, total int64)
}

// PortCapture is a capture behind a port. The default name of the port is the file's name, or its
// path if another capture has the same name; with several interfaces in the file, each is a port
// under that name.
type PortCapture struct{ Port, Path string }

// Conformance is a report with the ports and packets that it covers.
type Conformance struct {
	*conform.Report
	Ports []string `json:"ports"`
	// Cut is the number of packets that the captures truncated. Prefix is then the number of bytes
	// compared in each packet.
	Cut         uint64                 `json:"cut,omitempty"`
	Prefix      int                    `json:"prefix,omitempty"`
	SkippedLink window.UnreadableLinks `json:"skipped_link,omitempty"` // packets with link types other than Ethernet
	Damaged     Damage                 `json:"damaged,omitzero"`
}

// PortCaptures parses arguments such as "leaf3:up1=up1.pcap" or "up1.pcap". An argument that is an
// existing file is a path even if it has an =.
func PortCaptures(args []string) []PortCapture {
	list := make([]PortCapture, len(args))
	for i, arg := range args {
		list[i].Path = arg
		if _, err := os.Stat(arg); err == nil {
			continue
		}
		if port, path, named := strings.Cut(arg, "="); named {
			list[i] = PortCapture{port, path}
		}
	}
	return list
}

// WriteText writes the result for people.
func (c *Conformance) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, n uint64, about string) {
		if n > 0 {
			fmt.Fprintf(tw, "%s\t%d\t%s\n", name, n, about)
		}
	}
	n := &c.Counts
	line("before", n.Before, strconv.FormatUint(n.BeforeTagged, 10)+" tagged")
	line("after", n.After, strconv.FormatUint(n.AfterTagged, 10)+" tagged, by "+strings.Join(c.Ports, ", "))
	line("matched", n.Matched, strconv.FormatUint(n.Updated, 10)+" updated by the device")
	line("  trimmed", n.Trimmed, "of these, without their end")
	line("lost", n.Lost, "did not come out, or came out in fragments")
	line("extra", n.Extra, "did not go in")
	line("copies", n.Copies, "came out more often than they went in")
	line("not judged", n.Ambiguous, "look alike, and some are missing")
	line("not judged", n.Forgotten, "beyond the memory (--memory-packets)")
	line("not judged", n.Unknown, "cannot be recognized: cut, encrypted, or empty")
	line("not judged", n.NoTable, "of a signal type without a table: the tighter value is unknown")
	line("not judged", n.OwnUnknown, "updates that kept the locator metadata, perhaps the device's own")
	line("not judged", n.LossUnknown, "lost tagged packets: in fragments, or without enough others of their flow and size to compare with")
	line("not judged", n.PathsIgnored, "for their choice of a port: of unknown flows, of more flows than are remembered, or of flows that rarely change the port")
	line("not judged", n.NoMetric, "without a metric of their port at the time")
	line("cut", c.Cut, strconv.Itoa(c.Prefix)+" bytes of each packet are compared")
	c.SkippedLink.List(func(u window.UnreadableLink, packets uint64) { line("not read", packets, "of "+u.String()) })
	line("damaged", c.Damaged.Bytes, "bytes left out, in "+counted(c.Damaged.Gaps, "place"))
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	for i := range c.Findings {
		f := &c.Findings[i]
		fmt.Fprintf(w, "\n%s: %s: %d packets\n  demanded     %s (%s)\n  other cause  %s\n", f.Severity, f.Rule, f.Count, f.Demand, f.Source, f.Otherwise)
		for k := range f.Examples {
			fmt.Fprintf(w, "  %s\n", f.Examples[k].String())
		}
	}
	switch {
	case c.Broken() > 0:
	case n.Judged == 0:
		fmt.Fprintln(w, "\nnothing is judged")
		return nil
	case n.BeforeTagged > 0:
		fmt.Fprintln(w, "\nno rule is broken")
	}
	if names, why := c.Unjudged(); len(names) > 0 {
		fmt.Fprintf(w, "\n%d of %d rules are not judged, since %s: %s\n", len(names), conform.NumRules, why, strings.Join(names, ", "))
	}
	return nil
}

// NoteNoTags writes a hint for captures without tagged packets before the device.
func (c *Conformance) NoteNoTags(w io.Writer, d *csig.Domain) {
	fmt.Fprint(w, "note: no packet before the device has a CSIG tag.")
	noteTPIDs(w, d)
}

// minPrefix is the minimum number of bytes that distinguish the packets of a flow, such as a TCP
// header.
const minPrefix = 20

// conformance is the state of one run.
type conformance struct {
	cfg     *ConformConfig
	out     Conformance
	ports   map[port]int
	several map[string]bool // paths of arguments in which a file has several interfaces
	files   map[string]int  // by path: its index in Judge.Files, if it is not the only one of its argument
	judge   *conform.Judge  // nil while scanning
}

// port is the exit of packets: an interface in an argument's captures. It has no name if no file of
// the argument has several.
type port struct {
	argument int
	name     string
}

// Conform judges a device by the captures before and after it, which are spooled (see Spool). It
// reads them twice, and once more for each part that does not fit into memory
// (conform.Config.MaxPackets). If captures end early or are damaged, it returns the result for the
// readable part together with the error.
func Conform(ctx context.Context, cfg ConformConfig) (out *Conformance, err error) {
	cfg.After = slices.Clone(cfg.After)
	paths := slices.Clone(cfg.Before)
	for _, a := range cfg.After {
		paths = append(paths, a.Path)
	}
	for i, name := range captureNames(paths[len(cfg.Before):]) {
		cfg.After[i].Port = cmp.Or(cfg.After[i].Port, name)
	}
	err = Spool(ctx, paths, func(files []string) (err error) {
		n := len(cfg.Before)
		cfg.Before = files[:n]
		for i := range cfg.After {
			cfg.After[i].Path = files[n+i]
		}
		out, err = judge(ctx, cfg)
		return err
	})
	return out, err
}

// judge implements Conform for files that can be read repeatedly.
func judge(ctx context.Context, cfg ConformConfig) (*Conformance, error) {
	c := &conformance{cfg: &cfg, ports: make(map[port]int), several: make(map[string]bool), files: make(map[string]int)}
	c.nameFiles()
	c.out.SkippedLink = make(window.UnreadableLinks)
	first := &pass{progress: c.progress(0)}
	parts, err := c.scan(ctx, first)
	if err != nil {
		return nil, errors.Join(append(first.ends, err)...)
	}
	c.out.Damaged = first.damaged
	cfg.Judge.Ports, cfg.Judge.Prefix = c.out.Ports, c.out.Prefix
	if cfg.Fabric != nil {
		cfg.Judge.Own = func(port int, l csig.Layout, t uint8, lm uint16) (own, known bool) {
			return cfg.Fabric.Writes(c.out.Ports[port], l, t, lm)
		}
		cfg.Judge.Writers = func(tag *csig.Tag, src, dst netip.Addr) (string, bool) { return writersOf(cfg.Fabric, tag, src, dst) }
	}
	if c.judge, err = conform.New(cfg.Judge); err != nil {
		return nil, err
	}
	for part := range parts {
		err := c.part(ctx, part, parts, &pass{progress: c.progress(first.bytes)})
		if errors.Is(err, conform.ErrTooMany) {
			err = fmt.Errorf("%w, because many look alike: raise --memory-packets", err)
		}
		if err != nil {
			return nil, fmt.Errorf("judge captures: %w", err)
		}
	}
	c.out.Report = c.judge.Report()
	return &c.out, errors.Join(first.ends...)
}

// nameFiles names the files in front of the device, and those of each argument behind it, unless there
// is only one. Reading reports their errors.
func (c *conformance) nameFiles() {
	c.cfg.Judge.Files = []string{""}
	name := func(paths ...string) {
		var files []string
		for _, path := range paths {
			found, _, _ := capture.Files(path)
			files = append(files, found...)
		}
		for _, file := range files {
			if _, named := c.files[file]; !named && len(files) > 1 {
				c.files[file] = len(c.cfg.Judge.Files)
				c.cfg.Judge.Files = append(c.cfg.Judge.Files, file)
			}
		}
	}
	name(c.cfg.Before...)
	for i := range c.cfg.After {
		name(c.cfg.After[i].Path)
	}
}

// writersOf returns the devices that may have written a tag on its path. known reports whether these are all: none for
// an LM that no port has.
func writersOf(f *fabric.Fabric, tag *csig.Tag, src, dst netip.Addr) (devices string, known bool) {
	id, _ := f.Locate(tag.Layout, tag.T, tag.LM, src, dst)
	at, _ := f.Location(id)
	switch at.Kind {
	case fabric.KindPort:
		return at.Device, true
	case fabric.KindSet:
		var names []string
		for _, port := range at.Candidates {
			p, _ := f.Location(fabric.LocationIDOf(fabric.KindPort, port))
			names = append(names, p.Device)
		}
		slices.Sort(names)
		return strings.Join(slices.Compact(names), "\n"), at.CandidateCount == len(at.Candidates)
	}
	return "", at.Kind == fabric.KindUnknown
}

// part judges one part of the captures.
func (c *conformance) part(ctx context.Context, part, parts int, p *pass) error {
	c.judge.StartPart(part, parts)
	err := c.read(ctx, p, c.cfg.Before, func(_ port, p *conform.Packet) error { return c.judge.Before(p) })
	if err != nil {
		return err
	}
	err = c.read(ctx, p, c.after(), func(from port, p *conform.Packet) error {
		c.judge.After(c.ports[from], p)
		return nil
	})
	if err != nil {
		return err
	}
	c.judge.EndPart()
	return nil
}

// progress returns a callback for a pass over total bytes.
func (c *conformance) progress(total int64) func(int64) {
	if c.cfg.Progress == nil {
		return nil
	}
	return func(done int64) { c.cfg.Progress(done, total) }
}

// scan determines the number of parts in which the captures are judged, their ports, and the
// comparable length of packets.
func (c *conformance) scan(ctx context.Context, p *pass) (parts int, err error) {
	s, err := conform.NewScan(&c.cfg.Judge)
	if err != nil {
		return 0, err
	}
	err = c.read(ctx, p, c.cfg.Before, func(_ port, p *conform.Packet) error {
		s.Add(p)
		return nil
	})
	if err != nil {
		return 0, err
	}
	before := s.Packets()
	if before == 0 {
		return 0, noPackets(c.cfg.Before, c.out.SkippedLink.Total())
	}
	skipped := c.out.SkippedLink.Total()
	known := make(map[port]bool)
	var interfaces []port
	err = c.read(ctx, p, c.after(), func(from port, p *conform.Packet) error {
		if !known[from] {
			known[from] = true
			interfaces = append(interfaces, from)
		}
		s.Add(p)
		return nil
	})
	if err != nil {
		return 0, err
	}
	for _, at := range interfaces {
		c.addPort(at)
	}
	if len(c.ports) > conform.MaxPorts {
		return 0, fmt.Errorf("the captures after the device have more than %d interfaces, which are its ports: judge them in several runs", conform.MaxPorts)
	}
	if s.Packets() == before {
		return 0, noPackets(c.after(), c.out.SkippedLink.Total()-skipped)
	}
	if c.out.Cut, c.out.Prefix = s.Cut(); c.out.Cut > 0 && c.out.Prefix < minPrefix {
		return 0, fmt.Errorf("judge captures: packets are cut %d bytes behind the IP header: expected at least %d, capture with a longer snap length", c.out.Prefix, minPrefix)
	}
	c.cfg.Judge.Untrimmed = s.Untrimmed()
	limit := cmp.Or(c.cfg.Judge.MaxPackets, conform.DefaultMaxPackets)
	// Parts are chosen by hash, so their sizes differ.
	parts = 1 + before/(limit-limit/8)
	c.cfg.Judge.Expect = before / parts
	if parts > 1 {
		c.cfg.Judge.Expect += before / parts / 8
	}
	return parts, nil
}

// noPackets returns the error for captures, all those on one side of the device, without an Ethernet
// packet. skipped is the number of their packets of other link types.
func noPackets(paths []string, skipped uint64) error {
	at := strings.Join(captureNames(paths), ", ")
	if skipped > 0 {
		return fmt.Errorf("judge captures: %s: expected Ethernet packets, got %d packets of other link types", at, skipped)
	}
	return fmt.Errorf("judge captures: %s: expected packets, got none", at)
}

func (c *conformance) after() (paths []string) {
	for _, a := range c.cfg.After {
		paths = append(paths, a.Path)
	}
	return paths
}

// addPort adds the port of an interface unless it is known.
func (c *conformance) addPort(at port) {
	if !c.several[c.cfg.After[at.argument].Path] {
		at.name = ""
	}
	if _, known := c.ports[at]; !known {
		c.ports[at] = len(c.ports)
		c.out.Ports = append(c.out.Ports, c.portName(at))
	}
}

// portName returns the name of the port's file, followed by the interface if a file has several.
func (c *conformance) portName(p port) string {
	name := c.cfg.After[p.argument].Port
	if p.name != "" {
		return name + ":" + p.name
	}
	return name
}

// read passes on all Ethernet packets of captures. Packets are numbered in their own file.
func (c *conformance) read(ctx context.Context, p *pass, paths []string, f func(port, *conform.Packet) error) error {
	for i, path := range paths {
		if err := p.read(ctx, path, func(b *packets) error { return c.batch(i, path, b, f) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *conformance) batch(argument int, path string, b *packets, f func(port, *conform.Packet) error) error {
	scans := c.judge == nil
	if scans && !c.several[path] {
		c.several[path] = hasSeveral(b.interfaces)
	}
	named := scans || c.several[path] // while scanning, a later interface may have another name
	var p conform.Packet
	for i := range b.frames {
		frame := &b.frames[i]
		if !b.ethernet(frame) {
			if scans { // counted once in all passes
				c.out.SkippedLink.Add(b.unread(frame), 1)
			}
			continue
		}
		from := port{argument: argument}
		if named {
			from.name = interfaceName(b.interfaces, int(frame.Interface))
		}
		p = conform.Packet{Data: frame.Data, Number: frame.Packet, File: c.files[b.path], TimeNS: frame.TimeNS, WireLen: frame.WireLen}
		if err := f(from, &p); err != nil {
			return err
		}
	}
	return nil
}

// interfaceName identifies an interface in all sections of a file: by its name, or by its index in
// its section if it has none.
func interfaceName(interfaces []capture.Interface, at int) string {
	if name := interfaces[at].Name; name != "" {
		return name
	}
	first, _ := slices.BinarySearchFunc(interfaces[:at], interfaces[at].Section, func(i capture.Interface, section uint32) int {
		return cmp.Compare(i.Section, section)
	})
	return strconv.Itoa(at - first)
}

// hasSeveral reports whether a file has more than one interface. A section may repeat interfaces of
// earlier ones.
func hasSeveral(interfaces []capture.Interface) bool {
	for at := 1; at < len(interfaces); at++ {
		if interfaceName(interfaces, at) != interfaceName(interfaces, 0) {
			return true
		}
	}
	return false
}
