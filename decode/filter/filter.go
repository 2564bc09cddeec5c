package filter

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/net/bpf"

	"github.com/csigscope/csigscope/decode"
)

// Config is the configuration of a program.
type Config struct {
	// Decode is the configuration of the decoder that gets the frames.
	Decode decode.Config
	// VXLANPort and TZSPPort are the UDP ports of mirror sessions that the tap holds, unless the
	// decoder parses them anyway; 0 is none.
	VXLANPort, TZSPPort uint16
	// SnapLen is the number of bytes of a frame to keep; 0 keeps as many as decoding needs.
	SnapLen uint32
}

// The longest headers that the filter follows, in bytes: L2 with a tag, two IP packets, one
// tunneled in the other, and a transport header with all its options; and the bytes that a mirror
// session adds.
const (
	needHeaders   = 384
	needMirror    = 96
	needTransport = 60
	udpHeader     = 8
)

// SnapLen returns the number of bytes of a frame that decoding needs.
func SnapLen(cfg Config) uint32 {
	deepest := 0
	if cfg.Decode.Domain != nil {
		for _, r := range cfg.Decode.Domain.UDPReflections() {
			deepest = max(deepest, int(r.Offset)+r.Layout.Format.DataLen(), int(r.MatchOffset)+1, int(r.ValidOffset)+1)
		}
	}
	return uint32(needHeaders + needMirror + max(0, udpHeader+deepest-needTransport))
}

// New writes the filter of a packet socket, which gets frames starting at their Ethernet addresses,
// and a stripped outermost VLAN tag beside them. The program returns the number of bytes to keep,
// or 0 for a frame that holds nothing. New fails without a domain, and if the configuration has so
// many TPIDs, ports or TCP options that the program exceeds the kernel's limit of 4096 instructions.
func New(cfg Config) ([]bpf.RawInstruction, error) {
	code, err := build(cfg, strippedTag)
	if err != nil {
		return nil, fmt.Errorf("write filter: %w", err)
	}
	raw, err := bpf.Assemble(code)
	if err != nil {
		return nil, fmt.Errorf("write filter: %w", err)
	}
	return raw, nil
}

// strippedTag sets the accumulator to the TPID of the stripped tag, 0 without one.
func strippedTag(a *assembler) {
	a.emit(bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}, bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0, SkipTrue: 1},
		bpf.LoadExtension{Num: bpf.ExtVLANProto})
}

// maxLevels is the number of nested packets that are followed: the outermost one and two tunnels.
const maxLevels = 3

// writer writes one program.
type writer struct {
	*assembler
	tpids      []uint32
	kinds      []uint32 // of TCP options
	reflecting []uint32 // UDP ports
	tunnels    map[uint16]decode.Encap
	ports      []uint16 // of the tunnels

	pass, drop, tcp label
	levels          [maxLevels + 1]headerLabels
}

// headerLabels are the labels of one level's headers.
type headerLabels struct {
	ether label // X: at an EtherType
	typed label // A: an EtherType, X: two bytes before its header
	ipv4  label // X: at the header
	ipv6  label
}

// build writes the program after head, which leaves a stripped TPID in A. It follows as many
// tunnels as fit.
func build(cfg Config, head func(*assembler)) (code []bpf.Instruction, err error) {
	for levels := maxLevels; levels > 0; levels-- {
		if code, err = buildLevels(cfg, head, levels); !errors.Is(err, errTooLong) {
			break
		}
	}
	return code, err
}

func buildLevels(cfg Config, head func(*assembler), levels int) ([]bpf.Instruction, error) {
	w, err := newWriter(cfg)
	if err != nil {
		return nil, err
	}
	for i := range levels {
		w.levels[i] = headerLabels{w.newLabel(), w.newLabel(), w.newLabel(), w.newLabel()}
	}
	w.levels[levels] = headerLabels{w.pass, w.pass, w.pass, w.pass} // deeper packets
	head(w.assembler)
	w.anyOf(w.tpids, w.pass)
	w.emit(bpf.LoadConstant{Dst: bpf.RegX, Val: addresses})
	for i := range levels {
		w.level(i)
	}
	w.bind(w.tcp)
	w.tcpOptions()
	w.bind(w.drop)
	w.emit(bpf.RetConstant{Val: 0})
	w.bind(w.pass)
	snap := cfg.SnapLen
	if snap == 0 {
		snap = SnapLen(cfg)
	}
	w.emit(bpf.RetConstant{Val: snap})
	return w.finish()
}

func newWriter(cfg Config) (*writer, error) {
	d := cfg.Decode.Domain
	if d == nil {
		return nil, errors.New("no domain is configured")
	}
	w := &writer{assembler: &assembler{jumps: make(map[int]label)}, tunnels: map[uint16]decode.Encap{decode.TZSPPort: decode.TZSP}}
	if cfg.Decode.UDPTunnels == nil {
		maps.Copy(w.tunnels, decode.DefaultUDPTunnels())
	}
	maps.Copy(w.tunnels, cfg.Decode.UDPTunnels)
	for port, kind := range map[uint16]decode.Encap{cfg.VXLANPort: decode.VXLAN, cfg.TZSPPort: decode.TZSP} {
		if port != 0 {
			w.tunnels[port] = kind
		}
	}
	w.ports = slices.Sorted(maps.Keys(w.tunnels))
	for _, id := range d.TPIDs() {
		w.tpids = append(w.tpids, uint32(id))
	}
	for _, r := range d.Reflections() {
		w.kinds = append(w.kinds, uint32(r.Kind))
	}
	for _, r := range d.UDPReflections() {
		for _, port := range r.Ports {
			w.reflecting = append(w.reflecting, uint32(port))
		}
	}
	slices.Sort(w.kinds)
	slices.Sort(w.reflecting)
	w.kinds, w.reflecting = slices.Compact(w.kinds), slices.Compact(w.reflecting)
	w.pass, w.drop, w.tcp = w.newLabel(), w.newLabel(), w.newLabel()
	return w, nil
}

// level writes the headers of one packet, up to the tunnel that holds the next one.
func (w *writer) level(i int) {
	at, next := &w.levels[i], &w.levels[i+1]
	labelled, transport := w.newLabel(), w.newLabel()
	w.ether(at, labelled)
	w.bind(labelled)
	w.mpls(at, next)
	w.bind(at.ipv4)
	w.ipv4(transport)
	w.bind(at.ipv6)
	w.ipv6(transport)
	w.bind(transport)
	w.transport(next)
}
