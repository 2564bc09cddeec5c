package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/taps"
	"github.com/csigscope/csigscope/ingest/remote"
)

// Capture holds the keys that collect and export share.
type Capture struct {
	Instance       Text               `yaml:"instance,omitempty" unit:"name" default:"the host's name" help:"name of this process, which identifies its rows: do not change it, and give it to no other process of the same store or collector. Exporters that share a credential need one each, and not the default, which does not become part of the taps' names: their taps are then called CREDENTIAL/NAME/TAP. At most 200 bytes; for export, NAME has no slash, and NAME/TAP at most 124 bytes"`
	Taps           []Tap              `yaml:"taps,omitempty" help:"interfaces to capture from; at most 256 with mirrors"`
	By             Choice[readers]    `yaml:"capture,omitempty" default:"ring" help:"how packets of interfaces are read: ring copies all that may have CSIG to this process; ebpf counts them in the kernel, with flows from samples and without findings about single packets, and needs Linux 6.6, CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON; auto takes ebpf if the host and the settings allow it, else ring"`
	OddPackets     Choice[oddPackets] `yaml:"odd_packets,omitempty" default:"count" help:"with capture ebpf, where packets go that the program in the kernel does not read, such as tunnels: count only counts them, ring hands them to a ring"`
	CommitInterval Duration           `yaml:"commit_interval" range:"10ms..1h" help:"longest time between commits of closed windows to disk; a window of 1s that closes is committed sooner. A killed process loses the windows that closed since the last commit, and the open windows of 1s and shorter"`
	Lateness       Duration           `yaml:"lateness" range:"50ms..1m" help:"how long a window of 1s stays open for late packets after its end, before it is final and stored; shorter windows wait no longer, longer ones no less"`
}

// Collect holds the keys of collect.
type Collect struct {
	Capture `yaml:",inline"`
	MaxAge  Duration `yaml:"max_age" range:"1s..1m" help:"live answers have no data of a cell, a tap or an exporter that was silent for this long, rounded down to whole windows"`
	Mirrors []Mirror `yaml:"mirrors,omitempty" help:"addresses that switches send mirrored frames to; each session that arrives there is a tap of its own, NAME/SWITCH/SESSION"`
	Ingest  Ingest   `yaml:"ingest,omitempty"`
	Peers   Peers    `yaml:"peers,omitempty"`
}

// Export holds the keys of export.
type Export struct {
	Capture     `yaml:",inline"`
	Collectors  []string `yaml:"collectors,omitempty,flow" unit:"URL" help:"URLs of collectors (in the flag separated by commas): the exporter starts with the first, and stays with it until a request fails; then it goes on to the next, and after the last to the first again"`
	Credentials `yaml:",inline"`
	Spool       Spool `yaml:"spool"`
}

// Spool is the place where windows wait on disk for a collector.
type Spool struct {
	Dir  string `yaml:"dir,omitempty" unit:"folder" default:"in the user's data folder" help:"folder in which windows wait on disk for a collector"`
	Size Bytes  `yaml:"size" range:"1MiB.." help:"largest size of the spool; when it is full, the oldest windows are dropped"`
}

func defaultCollect() Collect {
	return Collect{Capture: defaultCapture(), MaxAge: Duration(table.DefaultMaxAge * aggregate.LiveResolution)}
}

func defaultCapture() Capture {
	var s window.Settings
	return Capture{CommitInterval: Duration(local.DefaultInterval), Lateness: Duration(s.LatenessOf(aggregate.LiveResolution))}
}

// Limits of the sections.
const (
	maxTaps         = 256
	maxInstanceName = 200
)

// Name returns the instance, or else the name of the host.
func (c *Capture) Name() (string, error) {
	if c.Instance != "" {
		return string(c.Instance), nil
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "", fmt.Errorf("name this instance after its host: %w: name it with --instance", err)
	}
	return name, nil
}

// Check validates the values, including those from flags.
func (c *Collect) Check() error {
	return errors.Join(c.checkTaps("collect", c.Mirrors), c.Ingest.check(), c.Peers.check())
}

// Check validates the values, including those from flags.
func (c *Export) Check() error {
	for i, url := range c.Collectors {
		if err := remote.CheckCollector(url, c.TLS.Files()); err != nil {
			return fmt.Errorf("export: collectors[%d]: %w", i, err)
		}
	}
	if err := c.TLS.Files().Check(); err != nil {
		return fmt.Errorf("export: tls: %w", err)
	}
	if err := remote.CheckSpoolBytes(int64(c.Spool.Size)); err != nil {
		return fmt.Errorf("export: spool: size: %w", err)
	}
	if strings.Contains(string(c.Instance), "/") {
		return fmt.Errorf("export: instance: %q: the collector knows taps as INSTANCE/TAP/RING: expected a name without a slash", c.Instance)
	}
	if err := remote.CheckStream(c.TapPrefix() + "x" + lastRing); err != nil {
		return fmt.Errorf("export: instance: the collector knows taps as INSTANCE/TAP/RING: %w", err)
	}
	for i := range c.Taps {
		if err := remote.CheckStream(c.TapPrefix() + c.Taps[i].TapName() + lastRing); err != nil {
			return fmt.Errorf("export: taps[%d]: the collector knows it by this name: %w: change its name or export.instance", i, err)
		}
	}
	return c.checkTaps("export", nil)
}

// lastRing is the longest suffix that a ring adds to the name of its tap.
const lastRing = "/255"

// TapPrefix returns the beginning of the names of taps at the collector: the instance, if one is configured.
// So exporters that share a credential remain apart.
func (c *Export) TapPrefix() string {
	if c.Instance == "" {
		return ""
	}
	return string(c.Instance) + "/"
}

// checkTaps validates the taps and mirrors of a section.
func (c *Capture) checkTaps(section string, mirrors []Mirror) error {
	if len(c.Instance) > maxInstanceName {
		return fmt.Errorf("%s: instance: expected at most %d bytes", section, maxInstanceName)
	}
	if n := len(c.Taps) + len(mirrors); n > maxTaps {
		return fmt.Errorf("%s: %d taps and mirrors: expected at most %d", section, n, maxTaps)
	}
	names := make(map[string]bool)
	check := func(key, name string, err error) error {
		if err == nil && names[name] {
			err = fmt.Errorf("%q is there twice: give the second one a name of its own", name)
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", section, key, err)
		}
		names[name] = true
		return nil
	}
	for i := range c.Taps {
		t := &c.Taps[i]
		if err := check(fmt.Sprintf("taps[%d]", i), t.TapName(), t.check()); err != nil {
			return err
		}
	}
	var listening []netip.AddrPort
	for i := range mirrors {
		m := &mirrors[i]
		key := fmt.Sprintf("mirrors[%d]", i)
		if err := check(key, m.name(), m.check()); err != nil {
			return err
		}
		socket, _ := m.socket() // checked before
		at := socket.Listen
		if j := slices.IndexFunc(listening, func(other netip.AddrPort) bool { return collide(at, other) }); j >= 0 {
			return fmt.Errorf("%s: %s: listen: mirrors[%d] receives at %s already: expected another port", section, key, j, listening[j])
		}
		listening = append(listening, at)
	}
	return nil
}

// collide reports whether only one of two sockets can be opened. Mirrors without a port can share an address.
// At [::], Linux receives IPv4 too, unless net.ipv6.bindv6only is set.
func collide(a, b netip.AddrPort) bool {
	covers := func(x, y netip.Addr) bool { return x == y || x.IsUnspecified() && (x.Is6() || y.Is4()) }
	x, y := a.Addr().Unmap(), b.Addr().Unmap()
	return a.Port() == b.Port() && a.Port() != 0 && (covers(x, y) || covers(y, x))
}

// The words of choices. The places are those of the fabric file.
type (
	places      struct{}
	directions  struct{}
	stamps      struct{}
	mirrorKinds struct{}
	clocks      struct{}
	readers     struct{}
	oddPackets  struct{}
)

func (readers) words() []string {
	return []string{string(taps.ByRing), string(taps.ByKernel), string(taps.ByEither)}
}
func (oddPackets) words() []string { return []string{"count", "ring"} }

func (places) words() []string      { return fabric.TapPlaces }
func (directions) words() []string  { return []string{"in", "both"} }
func (stamps) words() []string      { return []string{"auto", "software", "hardware"} }
func (mirrorKinds) words() []string { return []string{"erspan", "gretap", "vxlan", "tzsp"} }
func (clocks) words() []string {
	return []string{string(taps.ClockCollector), string(taps.ClockSwitch)}
}

// Place is the position of a tap on the path of packets. Only tags at receiver taps enter the heatmaps.
type Place = Choice[places]

// Tap is one interface to capture from.
type Tap struct {
	Interface   Text               `yaml:"interface" help:"name of the network interface; required"`
	Name        Text               `yaml:"name,omitempty" default:"the name of the interface" help:"name of the tap, as in the fabric file"`
	Place       Place              `yaml:"place,omitempty" default:"from the section taps, else from the fabric file, else from --place" help:"position of the tap on the path of packets; of tags, only those at receiver taps enter the heatmaps"`
	Weight      Quantity           `yaml:"weight,omitempty" range:"1..1073741824" default:"from the section taps, else from the fabric file, else 1" help:"packets that one captured packet stands for"`
	Rings       Quantity           `yaml:"rings,omitempty" range:"1..256" default:"1" help:"rings that share the frames, so that as many cores read them"`
	Blocks      Quantity           `yaml:"blocks,omitempty" range:"2.." default:"256" help:"blocks of 256KiB in each ring, which hold frames while the pipeline is slow"`
	Promiscuous bool               `yaml:"promiscuous,omitempty" help:"capture frames that are addressed to others"`
	Direction   Choice[directions] `yaml:"direction,omitempty" default:"in" help:"both also captures packets that this host sends"`
	Snap        Quantity           `yaml:"snap,omitempty" default:"the bytes that decoding needs" help:"bytes of a frame to keep"`
	Timestamps  Choice[stamps]     `yaml:"timestamps,omitempty" default:"auto" help:"clock of the frames' times"`
	Unfiltered  bool               `yaml:"unfiltered,omitempty" help:"capture and count frames without CSIG as well, which the kernel drops otherwise"`
	Mirrors     decode.Mirrors     `yaml:"mirrors,omitempty,flow" unit:"list" default:"from the section taps, else from the fabric file, else from --mirrors" help:"kinds of mirror sessions to unwrap, such as [erspan]; tags in other sessions are orphans, since anybody can send them"`
}

// TapName returns the name of the tap, or else of its interface.
func (t *Tap) TapName() string { return string(cmp.Or(t.Name, t.Interface)) }

func (t *Tap) check() error {
	if t.Interface == "" {
		return fmt.Errorf("tap %q: expected the name of an interface", t.Name)
	}
	if err := checkTapName(t.TapName()); err != nil {
		return err
	}
	_, err := capture.NewTap(t.config())
	return err
}

// checkTapName validates the name of an interface, a mirror or a session like the fabric
// file's.
func checkTapName(name string) error {
	err := fabric.CheckTaps([]fabric.TapSpec{{Name: name, Place: fabric.TapPlaces[0]}})
	if wrong, ok := errors.AsType[*fabric.SpecError](err); ok {
		return fmt.Errorf("%q: %s", name, wrong.Text)
	}
	return nil
}

// config returns the capture settings of the tap.
func (t *Tap) config() capture.TapConfig {
	stamp, _ := capture.ParseTimestampSource(string(t.Timestamps)) // one of the words
	return capture.TapConfig{
		Interface: string(t.Interface), Rings: t.Rings.Int(), Blocks: t.Blocks.Int(), SnapLen: uint32(min(t.Snap, 1<<20)),
		Outgoing: t.Direction == "both", Promiscuous: t.Promiscuous, Timestamps: stamp,
	}
}

// Mirror is an address to which switches send mirrored frames.
type Mirror struct {
	Listen      Text                     `yaml:"listen" help:"IP:PORT for vxlan and tzsp; IP for erspan and gretap, which takes CAP_NET_RAW; required"`
	Kind        Choice[mirrorKinds]      `yaml:"kind" help:"encapsulation; required"`
	Name        Text                     `yaml:"name,omitempty" default:"the kind and the address" help:"name of the tap"`
	Place       Place                    `yaml:"place,omitempty" default:"as for a tap" help:"place of sessions that have none of their own"`
	Weight      Quantity                 `yaml:"weight,omitempty" range:"1..1073741824" default:"as for a tap" help:"packets that one mirrored packet stands for"`
	Buffer      Bytes                    `yaml:"buffer,omitempty" range:"..1GiB" default:"64MiB" help:"memory for packets that wait in the kernel"`
	Clock       Choice[clocks]           `yaml:"clock,omitempty" default:"collector" help:"clock of the frames' times; switch takes the times that ERSPAN III carries, unless they are in no known unit or more than a minute off"`
	Sessions    map[string]MirrorSession `yaml:"sessions,omitempty" help:"sessions by SESSION, SWITCH or SWITCH/SESSION, such as 77, 192.0.2.1 or 192.0.2.1/77"`
	MaxSessions Quantity                 `yaml:"max_sessions,omitempty" range:"1..1024" default:"64" help:"sessions that are taps of their own; further ones count together"`
}

// MirrorSession holds settings for one session of a mirror.
type MirrorSession struct {
	Place  Place          `yaml:"place,omitempty" default:"of the mirror" help:"place of the session"`
	Weight Quantity       `yaml:"weight,omitempty" range:"1..1073741824" default:"of the mirror" help:"packets that one mirrored packet stands for"`
	Clock  Choice[clocks] `yaml:"clock,omitempty" default:"of the mirror" help:"clock of the frames' times"`
}

const defaultMaxSessions = 64

func (m *Mirror) name() string { return cmp.Or(string(m.Name), string(m.Kind)+" "+string(m.Listen)) }

func (m *Mirror) maxSessions() int { return cmp.Or(m.MaxSessions.Int(), defaultMaxSessions) }

func (m *Mirror) check() error {
	if m.Kind == "" {
		return fmt.Errorf("mirror %q: expected a kind: %s", m.Listen, m.Kind.Type())
	}
	if err := checkTapName(m.name()); err != nil {
		return err
	}
	for text := range m.Sessions {
		if err := checkTapName(m.name() + "/" + text); err != nil {
			return err
		}
	}
	if _, err := m.sessions(); err != nil {
		return err
	}
	cfg, err := m.socket()
	if err != nil {
		return err
	}
	_, err = capture.NewMirrorSocket(cfg)
	return err
}

// socket returns the settings of the socket that receives the mirror's packets.
func (m *Mirror) socket() (capture.MirrorSocketConfig, error) {
	cfg := capture.MirrorSocketConfig{Buffer: int(min(m.Buffer, math.MaxInt32))}
	var err error
	switch m.Kind {
	case "erspan", "gretap":
		var host netip.Addr
		if host, err = netip.ParseAddr(string(m.Listen)); err != nil {
			return cfg, fmt.Errorf("%s: listen %q: expected an IP address, without a port: GRE has none", m.name(), m.Listen)
		}
		cfg.Listen = netip.AddrPortFrom(host, 0)
	default:
		if cfg.Listen, err = netip.ParseAddrPort(string(m.Listen)); err != nil || cfg.Listen.Port() == 0 {
			return cfg, fmt.Errorf("%s: listen %q: expected IP:PORT such as 192.0.2.1:%d", m.name(), m.Listen, decode.DefaultVXLANPort)
		}
	}
	return cfg, nil
}

// kinds returns the expected kinds of sessions at a port.
func (m *Mirror) kinds(port uint16) (kinds decode.Mirrors) {
	switch m.Kind {
	case "erspan":
		kinds.ERSPAN = true
	case "gretap":
		kinds.GRETAP = true
	case "vxlan":
		kinds.VXLAN = port
	case "tzsp":
		kinds.TZSP = port
	}
	return kinds
}

// sessions returns the sessions that the section names.
func (m *Mirror) sessions() (map[taps.SessionMatch]taps.Session, error) {
	if n, most := len(m.Sessions), m.maxSessions(); n > most {
		return nil, fmt.Errorf("%s: %d sessions: expected at most max_sessions, %d", m.name(), n, most)
	}
	kind, err := decode.ParseMirrorKind(string(m.Kind))
	if err != nil {
		return nil, err
	}
	sessions := make(map[taps.SessionMatch]taps.Session, len(m.Sessions))
	texts := make(map[taps.SessionMatch]string, len(m.Sessions))
	for _, text := range slices.Sorted(maps.Keys(m.Sessions)) {
		match, err := taps.ParseSession(kind, text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name(), err)
		}
		if earlier, twice := texts[match]; twice {
			return nil, fmt.Errorf("%s: sessions: %q and %q are the same session: expected each once", m.name(), earlier, text)
		}
		texts[match] = text
		s := m.Sessions[text]
		sessions[match] = taps.Session{Place: string(s.Place), Weight: uint64(s.Weight), Clock: taps.Clock(s.Clock)}
	}
	return sessions, nil
}
