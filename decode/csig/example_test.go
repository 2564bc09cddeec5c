package csig_test

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/csigscope/csigscope/decode/csig"
)

// The two tags of the package comment.
func ExampleParse() {
	domain, err := csig.DefaultSpec().Compile()
	if err != nil {
		panic(err)
	}
	for _, frame := range [][]byte{
		{0x99, 0x00, 0x2b, 0x85},
		{0x88, 0xb6, 0x00, 0x0a, 0x20, 0x00, 0x9c, 0x00},
	} {
		layout, _ := domain.LayoutOf(uint16(frame[0])<<8 | uint16(frame[1]))
		tag := csig.Parse(layout, frame[2:])
		table := domain.Table(layout, tag.T)
		low, high, _ := table.Range(table.Code(tag.S))
		unit := table.Unit()
		fmt.Printf("%s T %d S %d LM %d: %s from %g to %g %s\n", layout, tag.T, tag.S, tag.LM,
			tag.Signal(), unit.FromStored(low), unit.FromStored(high), unit)
	}
	// Output:
	// compact/ietf01 T 1 S 23 LM 5: min_abw_ratio from 0.71875 to 0.75 ratio
	// wide/uec050 T 2 S 156 LM 5: max_delay from 19968 to 20096 ns
}

// A table gives a unit and an aggregation to a type that the profile leaves open.
func ExampleSpec_Compile() {
	const text = `
tables:
- {format: wide, profile: uec050, signal: type_9, unit: count, aggregation: sum, quantum: 4, heavy: 100}
`
	var spec csig.Spec
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		panic(err)
	}
	domain, err := csig.DefaultSpec().Overlay(spec).Compile()
	if err != nil {
		panic(err)
	}
	table := domain.Table(csig.Layout{Format: csig.Wide, Profile: csig.UEC050}, 9)
	first, _, _ := table.HeavyCodes(0)
	fmt.Println(table.Signal(), table.Unit(), table.Aggregation(), "heavy from code", first)
	fmt.Println("names a bottleneck:", table.Aggregation().Locates())
	// Output:
	// type_9 count sum heavy from code 25
	// names a bottleneck: false
}
