package filter

import (
	"fmt"

	"golang.org/x/net/bpf"

	"github.com/csigscope/csigscope/decode/csig"
)

const (
	// linkLayer is the offset that stands for the Ethernet addresses (SKF_LL_OFF).
	linkLayer = 0xffe00000
	// outgoing is the packet type of frames that the host sends (PACKET_OUTGOING).
	outgoing = 4

	// spread is an odd number near 2^32 over the golden ratio: multiplying by it spreads values
	// that differ in few bits.
	spread      = 0x9e3779b1
	spreadShift = 16
)

// Fanout writes the program that chooses a frame's ring: by the sum of the addresses of its
// outermost IP header, so that one ring gets both directions of a pair of hosts. Aggregation needs
// that: it recognizes a repeated reflection by earlier ones.
//
// The kernel's own hash does not look behind an unknown TPID, such as those of CSIG, and would send
// all tagged frames to a single ring. Frames that are not IP go to the first ring. A mirror session
// stays in one ring, by the addresses around it. Fanout fails as New does.
func Fanout(cfg Config) ([]bpf.RawInstruction, error) {
	code, err := buildFanout(cfg, behindAddresses)
	if err != nil {
		return nil, fmt.Errorf("write fanout program: %w", err)
	}
	raw, err := bpf.Assemble(code)
	if err != nil {
		return nil, fmt.Errorf("write fanout program: %w", err)
	}
	return raw, nil
}

// behindAddresses sets A to the first EtherType and X behind it. To such a program, a received
// frame starts behind its EtherType, a sent frame at its addresses.
func behindAddresses(a *assembler) {
	const addressesAndType = 14
	a.emit(
		bpf.LoadConstant{Dst: bpf.RegX, Val: 0},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: outgoing, SkipTrue: 1},
		bpf.LoadConstant{Dst: bpf.RegX, Val: addressesAndType},
		bpf.LoadAbsolute{Off: linkLayer + addresses, Size: 2},
	)
}

func buildFanout(cfg Config, head func(*assembler)) ([]bpf.Instruction, error) {
	w, err := newWriter(cfg)
	if err != nil {
		return nil, err
	}
	var compact, wide []uint32 // TPIDs
	for _, id := range w.tpids {
		if l, _ := cfg.Decode.Domain.LayoutOf(uint16(id)); l.Format == csig.Wide {
			wide = append(wide, id)
		} else {
			compact = append(compact, id)
		}
	}
	ipv4, ipv6, mpls := w.newLabel(), w.newLabel(), w.newLabel()
	head(w.assembler)
	for range etherHeaders + 1 {
		w.fanoutStep(compact, wide, ipv4, ipv6, mpls)
	}
	w.jump(w.drop)
	w.bind(mpls)
	w.fanoutLabels(ipv4, ipv6)
	for range etherHeaders {
		w.fanoutStep(compact, wide, ipv4, ipv6, w.drop)
	}
	w.jump(w.drop)
	w.bind(ipv4)
	w.addWords(12, 2)
	w.bind(ipv6)
	w.addWords(8, 8)
	w.bind(w.drop)
	w.emit(bpf.RetConstant{Val: 0})
	return w.finish()
}

// fanoutStep takes one step by the EtherType in A, with X behind it, and leaves the next EtherType
// in A.
func (w *writer) fanoutStep(compact, wide []uint32, ipv4, ipv6, mpls label) {
	const modified, hasSCI = 0x0c, 0x20
	four, eight, sixteen, secTAG, next := w.newLabel(), w.newLabel(), w.newLabel(), w.newLabel(), w.newLabel()
	w.anyOf(compact, four)
	w.anyOf(wide, eight)
	w.equal(etherIPv4, ipv4)
	w.equal(etherIPv6, ipv6)
	w.anyOf(etherVLANs, four)
	w.equal(etherMPLS, mpls)
	w.equal(etherMPLSUp, mpls)
	w.equal(etherSecTAG, secTAG)
	w.jump(w.drop)
	w.bind(secTAG)
	w.load(0, 1)
	w.bits(modified, w.drop)
	w.bits(hasSCI, sixteen)
	for _, header := range []struct {
		at     label
		length uint32 // with the EtherType after it
	}{{eight, 8}, {sixteen, 16}, {four, 4}} {
		w.bind(header.at)
		w.load(header.length-2, 2)
		w.store(protocolWord)
		w.advance(header.length)
		w.jump(next)
	}
	w.bind(next)
	w.fetch(protocolWord)
}

// fanoutLabels goes to the packet below MPLS labels, or to the first EtherType of the frame in a
// pseudowire.
func (w *writer) fanoutLabels(ipv4, ipv6 label) {
	const labels, bottomOfStack, controlWord = 8, 0x100, 4
	bottom := w.newLabel()
	for range labels {
		w.load(0, 4)
		w.bits(bottomOfStack, bottom)
		w.advance(4)
	}
	w.jump(w.drop)
	w.bind(bottom)
	w.advance(4)
	w.firstBits(&headerLabels{ipv4: ipv4, ipv6: ipv6})
	w.when(bpf.JumpNotEqual, 0, w.drop)
	w.load(controlWord+addresses, 2)
	w.store(protocolWord)
	w.advance(controlWord + addresses + 2)
	w.fetch(protocolWord)
}

// addWords returns a hash of the sum of n words, so that two addresses give the same hash in either
// order.
func (w *writer) addWords(at uint32, n int) {
	for i := range n {
		w.load(at+uint32(i)*4, 4)
		w.store(i)
	}
	w.fetch(0)
	for i := 1; i < n; i++ {
		w.emit(bpf.LoadScratch{Dst: bpf.RegX, N: i}, bpf.ALUOpX{Op: bpf.ALUOpAdd})
	}
	w.alu(bpf.ALUOpMul, spread)
	w.alu(shiftRight, spreadShift)
	w.emit(bpf.RetA{})
}
