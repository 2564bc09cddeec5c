package filter

import (
	"golang.org/x/net/bpf"

	"github.com/csigscope/csigscope/decode"
)

// Lengths and offsets of headers before the frame or packet in a tunnel.
const (
	tunnelHeader = 8  // VXLAN, Geneve without options, GTP-U without extensions
	addresses    = 12 // before the first EtherType
	payloadAt    = udpHeader + tunnelHeader
	erspan2      = 8
	erspan3      = 12
	subheader    = 8
)

// transport continues by the protocol in A, X at its header.
func (w *writer) transport(inside *headerLabels) {
	udp, gre, frame := w.newLabel(), w.newLabel(), w.newLabel()
	w.equal(6, w.tcp)
	w.equal(17, udp)
	w.equal(47, gre)
	w.equal(4, inside.ipv4)
	w.equal(41, inside.ipv6)
	w.equal(143, frame)
	w.jump(w.drop)
	w.bind(frame)
	w.advance(addresses)
	w.jump(inside.ether)
	w.bind(udp)
	w.udp(inside)
	w.bind(gre)
	w.gre(inside)
}

func (w *writer) udp(inside *headerLabels) {
	w.load(2, 2)
	w.anyOf(w.reflecting, w.pass)
	vxlan, gpe, geneve, gtpu, tzsp := w.newLabel(), w.newLabel(), w.newLabel(), w.newLabel(), w.newLabel()
	for _, port := range w.ports {
		to := w.drop // the inside of PSP is encrypted
		switch w.tunnels[port] {
		case decode.VXLAN:
			to = vxlan
		case decode.VXLANGPE:
			to = gpe
		case decode.Geneve:
			to = geneve
		case decode.GTPU:
			to = gtpu
		case decode.TZSP:
			to = tzsp
		}
		w.equal(uint32(port), to)
	}
	w.jump(w.drop)
	w.bind(vxlan)
	w.vxlan(inside)
	w.bind(gpe)
	w.vxlanGPE(inside)
	w.bind(geneve)
	w.geneve(inside)
	w.bind(gtpu)
	w.gtpu(inside)
	w.bind(tzsp)
	w.tzsp(inside)
}

func (w *writer) vxlan(inside *headerLabels) {
	const hasID = 0x08
	ok := w.newLabel()
	w.load(udpHeader, 1)
	w.bits(hasID, ok)
	w.jump(w.drop)
	w.bind(ok)
	w.advance(payloadAt + addresses)
	w.jump(inside.ether)
}

func (w *writer) vxlanGPE(inside *headerLabels) {
	const version, maintenance, hasProtocol = 0x30, 0x01, 0x04
	named, ipv4, ipv6, frame := w.newLabel(), w.newLabel(), w.newLabel(), w.newLabel()
	w.load(udpHeader, 1)
	w.bits(version|maintenance, w.drop)
	w.bits(hasProtocol, named)
	w.jump(frame)
	w.bind(named)
	w.load(udpHeader+3, 1)
	w.equal(1, ipv4)
	w.equal(2, ipv6)
	w.equal(3, frame)
	w.jump(w.drop)
	w.bind(ipv4)
	w.advance(payloadAt)
	w.jump(inside.ipv4)
	w.bind(ipv6)
	w.advance(payloadAt)
	w.jump(inside.ipv6)
	w.bind(frame)
	w.advance(payloadAt + addresses)
	w.jump(inside.ether)
}

func (w *writer) geneve(inside *headerLabels) {
	const version, control, optionWords = 0xc0, 0x80, 0x3f
	w.load(udpHeader, 1)
	w.bits(version, w.drop)
	w.load(udpHeader+1, 1)
	w.bits(control, w.drop)
	w.load(udpHeader+2, 2)
	w.store(protocolWord)
	w.load(udpHeader, 1)
	w.alu(bpf.ALUOpAnd, optionWords)
	w.alu(shiftLeft, 2)
	w.alu(bpf.ALUOpAdd, payloadAt-2)
	w.advanceA()
	w.fetch(protocolWord)
	w.etherPayload(inside)
}

// etherPayload continues by the EtherType in A, X two bytes before its header.
func (w *writer) etherPayload(inside *headerLabels) {
	frame := w.newLabel()
	w.equal(etherFrame, frame)
	w.jump(inside.typed)
	w.bind(frame)
	w.advance(2 + addresses)
	w.jump(inside.ether)
}

// gtpu steps over the header of GTP-U (3GPP TS 29.281) and its extension headers, each of which
// ends with the type of the next.
func (w *writer) gtpu(inside *headerLabels) {
	const version, version1, userPacket = 0xf0, 0x30, 255
	const extended, optional = 0x04, 0x07
	const typeAt, optionalLen, extensions = 11, 12, 4
	long, ended := w.newLabel(), w.newLabel()
	w.advance(udpHeader)
	w.load(0, 1)
	w.alu(bpf.ALUOpAnd, version)
	w.when(bpf.JumpNotEqual, version1, w.drop)
	w.load(1, 1)
	w.when(bpf.JumpNotEqual, userPacket, w.drop)
	w.load(0, 1)
	w.bits(optional, long)
	w.advance(tunnelHeader)
	w.firstBits(inside)
	w.jump(w.drop)
	w.bind(long)
	w.emit(bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: extended, SkipTrue: 1})
	w.jump(ended)
	for range extensions {
		w.load(typeAt, 1)
		w.equal(0, ended)
		w.load(typeAt+1, 1)
		w.equal(0, w.drop)
		w.alu(shiftLeft, 2)
		w.advanceA()
	}
	w.jump(w.pass)
	w.bind(ended)
	w.advance(optionalLen)
	w.firstBits(inside)
	w.jump(w.drop)
}

// gre steps over the header (RFC 2784, RFC 2890) and over the ERSPAN header
// (draft-foschiano-erspan-03).
func (w *writer) gre(inside *headerLabels) {
	const routing, version, sequence = 0x4000, 0x0007, 0x1000
	w.load(2, 2)
	w.store(protocolWord)
	w.load(0, 2)
	w.bits(routing|version, w.drop)
	w.store(flagsWord)
	for _, optional := range [...]uint32{0x8000, 0x2000, sequence} {
		w.fetch(flagsWord)
		w.emit(bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: optional, SkipFalse: 3})
		w.advance(4)
	}
	w.advance(4 - 2)
	w.fetch(protocolWord)
	w.erspan(inside)
	w.etherPayload(inside)
}

// tzsp steps over the fields of TZSP to the frame behind them.
func (w *writer) tzsp(inside *headerLabels) {
	const head, received, padding, end, fields = 4, 0x01000001, 0, 1, 8
	ended := w.newLabel()
	w.load(udpHeader, head)
	w.when(bpf.JumpNotEqual, received, w.drop)
	w.advance(udpHeader + head)
	for range fields {
		single, next := w.newLabel(), w.newLabel()
		w.load(0, 1)
		w.equal(end, ended)
		w.equal(padding, single)
		w.load(1, 1)
		w.alu(bpf.ALUOpAdd, 2)
		w.advanceA()
		w.jump(next)
		w.bind(single)
		w.advance(1)
		w.bind(next)
	}
	w.jump(w.pass)
	w.bind(ended)
	w.advance(1 + addresses)
	w.jump(inside.ether)
}

func (w *writer) erspan(inside *headerLabels) {
	const sequence, hasSubheader = 0x1000, 0x01
	other, second, third := w.newLabel(), w.newLabel(), w.newLabel()
	w.equal(etherERSPAN2, second)
	w.equal(etherERSPAN3, third)
	w.jump(other)
	w.bind(second)
	w.fetch(flagsWord)
	w.emit(bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: sequence, SkipFalse: 3})
	w.advance(erspan2)
	w.advance(2 + addresses)
	w.jump(inside.ether)
	w.bind(third)
	w.load(2+erspan3-1, 1)
	w.emit(bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: hasSubheader, SkipFalse: 3})
	w.advance(subheader)
	w.advance(2 + erspan3 + addresses)
	w.jump(inside.ether)
	w.bind(other)
}
