package filter

import "golang.org/x/net/bpf"

const (
	shiftLeft  = bpf.ALUOpShiftLeft
	shiftRight = bpf.ALUOpShiftRight

	// Memory words of a program.
	protocolWord = 0
	flagsWord    = 1
	endWord      = 1
	hereWord     = 2

	extensionHeaders = 4
	tcpOptionSteps   = 20
)

// ipv4 moves to the transport header, with its protocol in A. It drops later fragments, which have
// no transport header. It passes packets with an authentication header, which are rare.
func (w *writer) ipv4(transport label) {
	const version4, fragmentOffset, authentication = 4, 0x1fff, 51
	w.load(0, 1)
	w.alu(shiftRight, 4)
	w.when(bpf.JumpNotEqual, version4, w.drop)
	w.load(6, 2)
	w.bits(fragmentOffset, w.drop)
	w.load(9, 1)
	w.equal(authentication, w.pass)
	w.store(protocolWord)
	w.load(0, 1)
	w.alu(bpf.ALUOpAnd, 15)
	w.when(bpf.JumpLessThan, 5, w.drop)
	w.alu(shiftLeft, 2)
	w.advanceA()
	w.fetch(protocolWord)
	w.jump(transport)
}

// ipv6 does the same behind extension headers.
func (w *writer) ipv6(transport label) {
	const version6, fragmentOffset = 6, 0xfff8
	w.load(0, 1)
	w.alu(shiftRight, 4)
	w.when(bpf.JumpNotEqual, version6, w.drop)
	w.load(6, 1)
	w.store(protocolWord)
	w.advance(40)
	for range extensionHeaders {
		words, fragment, authentication, next := w.newLabel(), w.newLabel(), w.newLabel(), w.newLabel()
		w.fetch(protocolWord)
		w.anyOf([]uint32{0, 43, 60, 135}, words)
		w.equal(44, fragment)
		w.equal(51, authentication)
		w.jump(transport)
		w.bind(fragment)
		w.load(2, 2)
		w.bits(fragmentOffset, w.drop)
		w.extension(0, 0, 8, next)
		w.bind(authentication)
		w.extension(2, 2, 0, next)
		w.bind(words)
		w.extension(1, 3, 0, next)
		w.bind(next)
	}
	w.fetch(protocolWord)
	w.anyOf([]uint32{0, 43, 44, 51, 60, 135}, w.pass)
	w.jump(transport)
}

// extension steps over an extension header of a fixed length, or of its second byte plus more,
// shifted left.
func (w *writer) extension(more, shift, fixed uint32, next label) {
	w.load(0, 1)
	w.store(protocolWord)
	if fixed > 0 {
		w.advance(fixed)
	} else {
		w.load(1, 1)
		w.alu(bpf.ALUOpAdd, more)
		w.alu(shiftLeft, shift)
		w.advanceA()
	}
	w.jump(next)
}

// tcpOptions passes segments with an option of a kind that reflects.
func (w *writer) tcpOptions() {
	const fixed, endOfList, noOperation = 20, 0, 1
	if len(w.kinds) == 0 {
		w.jump(w.drop)
		return
	}
	w.load(12, 1)
	w.alu(shiftRight, 4)
	w.alu(shiftLeft, 2)
	w.when(bpf.JumpLessOrEqual, fixed, w.drop)
	w.emit(bpf.ALUOpX{Op: bpf.ALUOpAdd})
	w.store(endWord)
	w.advance(fixed)
	for range tcpOptionSteps {
		single, next := w.newLabel(), w.newLabel()
		w.emit(bpf.TXA{})
		w.store(hereWord)
		w.emit(bpf.LoadScratch{Dst: bpf.RegX, N: endWord}, bpf.JumpIfX{Cond: bpf.JumpGreaterOrEqual, SkipFalse: 1})
		w.jump(w.drop)
		w.emit(bpf.LoadScratch{Dst: bpf.RegX, N: hereWord})
		w.load(0, 1)
		w.equal(noOperation, single)
		w.equal(endOfList, w.drop)
		w.anyOf(w.kinds, w.pass)
		w.load(1, 1)
		w.when(bpf.JumpLessThan, 2, w.drop)
		w.advanceA()
		w.jump(next)
		w.bind(single)
		w.advance(1)
		w.bind(next)
	}
	w.jump(w.pass)
}
