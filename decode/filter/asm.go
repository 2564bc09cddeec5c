package filter

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/net/bpf"
)

// maxInstructions is the kernel's limit (BPF_MAXINSNS).
const maxInstructions = 4096

var errTooLong = errors.New("the program is too long")

// label is a jump target in the program, forward only.
type label int

// assembler writes instructions whose jumps name labels. Condition skips are too short for long
// programs, so a long jump follows each condition.
type assembler struct {
	code    []bpf.Instruction
	jumps   map[int]label // by index in code
	offsets []int         // by label, -1 before it is placed
}

func (a *assembler) newLabel() label {
	a.offsets = append(a.offsets, -1)
	return label(len(a.offsets) - 1)
}

// newLabels returns n labels.
func (a *assembler) newLabels(n int) []label {
	list := make([]label, n)
	for i := range list {
		list[i] = a.newLabel()
	}
	return list
}

func (a *assembler) bind(l label) { a.offsets[l] = len(a.code) }

func (a *assembler) emit(in ...bpf.Instruction) { a.code = append(a.code, in...) }

func (a *assembler) jump(to label) {
	a.jumps[len(a.code)] = to
	a.emit(bpf.Jump{})
}

// when jumps if the comparison of the accumulator with the value holds.
func (a *assembler) when(test bpf.JumpTest, value uint32, to label) {
	a.emit(bpf.JumpIf{Cond: test, Val: value, SkipFalse: 1})
	a.jump(to)
}

func (a *assembler) equal(value uint32, to label) { a.when(bpf.JumpEqual, value, to) }
func (a *assembler) bits(mask uint32, to label)   { a.when(bpf.JumpBitsSet, mask, to) }

// anyOf jumps if the accumulator is one of the values.
func (a *assembler) anyOf(values []uint32, to label) {
	const longest = 200 // a condition skips at most 255
	for chunk := range slices.Chunk(values, longest) {
		for i, v := range chunk {
			a.emit(bpf.JumpIf{Cond: bpf.JumpEqual, Val: v, SkipTrue: uint8(len(chunk) - i)})
		}
		a.emit(bpf.Jump{Skip: 1})
		a.jump(to)
	}
}

// load sets the accumulator to bytes of the frame, at an offset from X.
func (a *assembler) load(offset uint32, size int) { a.emit(bpf.LoadIndirect{Off: offset, Size: size}) }

// advance moves X forward. It leaves the new X in the accumulator.
func (a *assembler) advance(n uint32) {
	a.emit(bpf.TXA{}, bpf.ALUOpConstant{Op: bpf.ALUOpAdd, Val: n}, bpf.TAX{})
}

// advanceA moves X forward by the accumulator.
func (a *assembler) advanceA() { a.emit(bpf.ALUOpX{Op: bpf.ALUOpAdd}, bpf.TAX{}) }

func (a *assembler) alu(op bpf.ALUOp, value uint32) {
	a.emit(bpf.ALUOpConstant{Op: op, Val: value})
}

func (a *assembler) store(n int) { a.emit(bpf.StoreScratch{Src: bpf.RegA, N: n}) }
func (a *assembler) fetch(n int) { a.emit(bpf.LoadScratch{Dst: bpf.RegA, N: n}) }

// finish fills in the jumps.
func (a *assembler) finish() ([]bpf.Instruction, error) {
	if len(a.code) > maxInstructions {
		return nil, fmt.Errorf("%w: %d instructions, expected at most %d: configure fewer TPIDs, ports or TCP options", errTooLong, len(a.code), maxInstructions)
	}
	for at, to := range a.jumps {
		skip := a.offsets[to] - at - 1
		if skip < 0 {
			return nil, fmt.Errorf("instruction %d jumps back", at)
		}
		a.code[at] = bpf.Jump{Skip: uint32(skip)}
	}
	return a.code, nil
}
